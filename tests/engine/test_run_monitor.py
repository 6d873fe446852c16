"""Progress of simulations that run in compiled code."""

from __future__ import annotations

import pytest

import kilowait as kw
from kilowait.engine.run_monitor import monitored_runs
from tests.engine.stepwise_policy import INTERPRETED, as_bytes

Seen = list[tuple[int, int, float]]


def monitored(policy: str, jobs: kw.JobTable, cluster: kw.Cluster, interval_s: float) -> tuple[kw.ExecutionLog, Seen]:
    seen: Seen = []
    with monitored_runs(lambda ended, total, seconds: seen.append((ended, total, seconds)), interval_s):
        log = kw.simulate(jobs, cluster, policy)
    return log, seen


def test_ended_jobs_increase_while_a_run_goes_on() -> None:
    jobs = kw.lublin(300 if INTERPRETED else 60_000, nodes=64, load=1.0, seed=3)
    cluster = kw.Cluster.from_nodes(64)
    plain = kw.simulate(jobs, cluster, "sjf")
    log, seen = monitored("sjf", jobs, cluster, 0.002)
    ended = [one[0] for one in seen]
    assert ended == sorted(ended) and ended[-1] == len(jobs)
    assert any(0 < number < len(jobs) for number in ended)
    assert {one[1] for one in seen} == {len(jobs)}
    assert [one[2] for one in seen] == sorted(one[2] for one in seen)
    assert as_bytes(log) == as_bytes(plain)


def test_cancelled_and_rejected_jobs_have_ended() -> None:
    jobs = kw.JobTable(
        job_id=[1, 2, 3], submit_s=[0, 1, 2], runtime_s=[9, 9, 9], nodes=[4, 4, 9], cancel_s=[1e9, 5.0, 1e9]
    )
    seen: Seen = []
    with monitored_runs(lambda *progress: seen.append(progress)):
        kw.simulate(jobs, kw.Cluster.from_nodes(4), on_oversized="drop")
    assert [one[:2] for one in seen] == [(3, 3)]


def test_gpu_runs_and_several_runs_are_reported_and_others_are_not() -> None:
    gpu = kw.Cluster.preset("gpu-mixed")
    jobs = kw.JobTable(job_id=[1, 2], submit_s=[0, 1], runtime_s=[9, 9], nodes=[1, 1], gpus=[1, 1])
    _, seen = monitored("fcfs", jobs, gpu, 60.0)
    assert [one[:2] for one in seen] == [(2, 2)]
    kw.simulate(jobs, gpu)
    assert len(seen) == 1
    with pytest.raises(ZeroDivisionError), monitored_runs(lambda *progress: seen.append(progress)):
        kw.simulate(jobs, gpu)
        kw.simulate(jobs[:1], gpu)
        _ = 1 / 0
    assert [one[:2] for one in seen] == [(2, 2), (2, 2), (1, 1)]
    kw.simulate(jobs, gpu)
    assert len(seen) == 3
