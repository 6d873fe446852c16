"""GPU priority policies and round-based policies, each on a case with a known answer."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from scipy.optimize import linprog

import kilowait as kw
from kilowait.cluster import Cluster, NodeGroup
from kilowait.cluster.gpu_speeds import Speeds
from kilowait.engine.gpu.settings import GpuSettings
from kilowait.errors import InputError
from kilowait.policies import round_based
from kilowait.policies.round_based import ROUND_BASED_POLICIES, ActiveJobs, allox, finish_time_fair, max_min


def machine(**gpus):
    """One node of each type with this number of GPUs."""
    return Cluster(
        groups=tuple(NodeGroup(name, 1, cores=64, gpus=n, gpu_type=name, node_level=True) for name, n in gpus.items())
    )


def jobs_of(submit, runs, gpus, **columns):
    n = len(runs)
    return kw.JobTable(job_id=range(n), submit_s=submit, runtime_s=runs, nodes=[1] * n, gpus=gpus, **columns)


FREE = {"gpu_speeds": "none", "checkpoint_load_s": 0.0}
"""Settings without differences between GPU types and with free preemption."""


def ends(*arguments, **settings):
    return kw.simulate(*arguments, **{**FREE, **settings}).jobs()["end_s"].tolist()


def test_srtf_starts_the_shortest_remaining_time_first():
    jobs = jobs_of([0, 5], [100, 10], [1, 1])
    assert ends(jobs, machine(V100=1), "srtf") == [110, 15]
    late = jobs_of([0, 95], [100, 10], [1, 1])
    assert ends(late, machine(V100=1), "srtf") == [100, 110]  # five are left of the first


def test_srsf_counts_gpus():
    jobs = jobs_of([0, 0, 0], [30, 20, 35], [1, 2, 1])
    assert ends(jobs, machine(V100=2), "srsf")[1] == 55  # 40 GPU-seconds come after 30 and 35


def test_qssf_is_srsf_without_preemption():
    jobs = jobs_of([0, 5], [100, 10], [1, 1])
    assert ends(jobs, machine(V100=1), "qssf") == [100, 110]


def test_las_alternates_jobs():
    jobs = jobs_of([0, 0], [600, 600], [1, 1])
    log = kw.simulate(jobs, machine(V100=1), "las", backfill="none", **FREE)
    # After five minutes the second has had less; at ten they are even, and nobody is put out.
    assert len(log) == 3 and log.jobs()["end_s"].tolist() == [1200, 900]


def test_tiresias_uses_priority_queues():
    jobs = jobs_of([0, 1], [1000, 1000], [1, 1])
    how = GpuSettings(preempt=True, round_interval_s=100, checkpoint_load_s=0)
    one = kw.simulate(jobs, machine(V100=1), "tiresias:limits=400", settings=how, gpu_speeds="none").jobs()["end_s"]
    # The first goes down after 400 s, the second has the same; then the first, who came earlier, ends before it.
    assert one.tolist() == [1400, 2000]
    with pytest.raises(InputError, match="write GPU-seconds such as"):
        kw.simulate(jobs, machine(V100=1), "tiresias:limits=soon", backfill="none", gpu_speeds="none")


def test_priority_preempts_lower_priority():
    jobs = jobs_of([0, 5], [100, 10], [1, 1], priority=[0, 1])
    assert ends(jobs, machine(V100=1), "priority") == [110, 15]


def active(speed, capacity, remaining=None, **more):
    n = len(speed)
    ones = np.ones(n)
    usual = {"weight": ones, "waited_s": 0 * ones, "attained_s": 0 * ones, "done_s": 0 * ones, "gpus": ones}
    return ActiveJobs(
        now_s=0.0,
        number=np.arange(n),
        speed=np.array(speed, float),
        capacity=np.array(capacity, float),
        remaining_s=ones if remaining is None else np.array(remaining, float),
        **{**usual, **more},
    )


def test_max_min_assigns_types_by_relative_speed():
    # Gavel's example: what gains most from the fast type gets it.
    shares = max_min(active([[4, 1], [1, 1]], [1, 1]))
    assert shares.round(2).tolist() == [[1, 0], [0, 1]]
    alike = max_min(active([[1], [1], [1]], [1]))
    assert alike.ravel() == pytest.approx([1 / 3] * 3)
    weighted = max_min(active([[1], [1]], [1], weight=np.array([3.0, 1.0])))
    assert weighted.ravel() == pytest.approx([0.75, 0.25])


def test_shares_respect_capacity():
    rng = np.random.default_rng(0)
    for n in (1, 3, 20):
        many = active(rng.uniform(0.1, 5, (n, 3)) * (rng.random((n, 3)) < 0.9), [2, 3, 1], rng.uniform(1, 99, n))
        for policy in (max_min, finish_time_fair, allox):
            shares = policy(many)
            assert (shares >= 0).all() and (shares.sum(1) <= 1 + 1e-7).all()
            assert (many.gpus @ shares <= many.capacity + 1e-7).all() and (shares[many.speed == 0] == 0).all()


def test_finish_time_fair_favours_jobs_that_have_waited():
    waited = active([[1], [1]], [1], [100, 100], waited_s=np.array([300.0, 0.0]))
    shares = finish_time_fair(waited)
    assert shares[0, 0] > 0.6 > shares[1, 0]


def test_allox_runs_short_jobs_first_on_their_fastest_type():
    shares = allox(active([[1, 0.1], [1, 0.5], [1, 1]], [1, 1], [10, 50, 20]))
    assert shares[0].tolist() == [1, 0] and shares[2].tolist() == [0, 1] and shares[1].tolist() == [0, 0]


@pytest.mark.parametrize("name", ROUND_BASED_POLICIES)
def test_every_round_based_policy_completes_all_jobs(name):
    jobs = jobs_of([0, 0, 0, 500], [3000, 2000, 1000, 400], [1, 1, 2, 1])
    speed = Speeds(("A", "B"), np.array([[2.0, 1, 1, 1], [1.0, 1, 0.5, 2]]), np.ones((2, 4)), np.ones((2, 4), np.int8))
    log = kw.simulate(jobs, machine(A=2, B=1), name, speeds=speed, backfill="none")
    assert log.run["policy"] == name and (log.job_outcome == 1).all()
    per_job = np.bincount(log.job, log.pieces.work_s - log.pieces.lost_s)
    assert per_job == pytest.approx([3000, 2000, 1000, 400])
    held = {}
    for i in range(len(log)):
        held.setdefault(int(log.job[i]), []).append((log.start_s[i], log.end_s[i]))
    for spans in held.values():
        assert all(a[1] <= b[0] for a, b in pairwise(spans))


def test_gavel_beats_fcfs_on_its_example():
    jobs = jobs_of([0] * 6, [7200] * 6, [1] * 6)
    speed = Speeds(
        ("A", "B"), np.array([[4.0, 4, 4, 1, 1, 1], [1.0, 1, 1, 1, 1, 1]]), np.ones((2, 6)), np.ones((2, 6), np.int8)
    )
    mean = {p: np.mean(ends(jobs, machine(A=2, B=2), p, speeds=speed)) for p in ("fcfs", "gavel")}
    assert mean["gavel"] < mean["fcfs"]


def test_identical_jobs_get_the_same_shares_as_in_a_program_of_all_jobs():
    """The minimum gain is that of the linear program with a row for each job."""
    rng = np.random.default_rng(3)
    kinds = rng.uniform(0.2, 3.0, (4, 3))
    jobs = active(kinds[rng.integers(0, 4, 40)].tolist(), [6.0, 5.0, 4.0])
    shares = max_min(jobs)
    _, kind = np.unique(jobs.speed, axis=0, return_inverse=True)
    for number in range(4):
        assert np.ptp(shares[kind.ravel() == number], axis=0).max() == 0
    assert (shares.sum(axis=1) <= 1 + 1e-9).all() and (shares.sum(axis=0) <= jobs.capacity + 1e-6).all()
    gains = jobs.speed / jobs.equal_rate[:, None]
    n, types = jobs.speed.shape
    rows = np.zeros((2 * n + types, n * types + 1))
    for job in range(n):
        rows[job, job * types : (job + 1) * types], rows[job, -1] = -gains[job], 1.0
        rows[n + job, job * types : (job + 1) * types] = 1.0
    for kind_of_gpu in range(types):
        rows[2 * n + kind_of_gpu, kind_of_gpu : n * types : types] = 1.0
    bound = np.concatenate([np.zeros(n), np.ones(n), jobs.capacity])
    best = linprog(np.append(np.zeros(n * types), -1.0), rows, bound)
    assert (gains * shares).sum(axis=1).min() == pytest.approx(-best.fun, rel=1e-3)


def test_long_runs_of_round_based_policies_report_their_progress(monkeypatch, caplog):
    monkeypatch.setattr(round_based, "PROGRESS_INTERVAL_S", 0.0)
    kw.simulate(jobs_of([0, 0], [600, 600], [1, 1]), machine(V100=1), "gavel", gpu_speeds="none")
    messages = [record.getMessage() for record in caplog.records]
    assert "gavel: 0 of 2 jobs have ended, 0 run, 2 wait, 0 s after the first submission" in messages
    assert any(message.startswith("gavel: 1 of 2 jobs have ended") for message in messages)
