"""Runs in which jobs wait or run for ever end with an error that names job, request, policy and remedy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import kilowait as kw
from kilowait.cluster import Cluster, NodeGroup
from kilowait.cluster.gpu_speeds import Speeds
from kilowait.engine.gpu.event_loop import MAX_IDLE_ROUNDS
from kilowait.engine.gpu.settings import GpuSettings
from kilowait.engine.gpu.simulator import GpuSimulator
from kilowait.envs.gpu_env import run_gpu_policy
from kilowait.errors import InputError, NoProgressError

CLUSTER = Cluster((NodeGroup("a", 2, cores=8, memory_gb=64, gpus=4, gpu_type="V100", node_level=True),))
ROUNDS = {"round_interval_s": 360.0, "rounds": True}


def table(n: int = 2, **columns: object) -> kw.JobTable:
    """Jobs of 2 GPUs, 3 cores and 500 MB, submitted at 0, 10, 20, ... s."""
    times = {"submit_s": 10.0 * np.arange(n), "runtime_s": [100.0] * n}
    request = {"nodes": [1] * n, "gpus": [2] * n, "cores": [3] * n, "memory_mb": [500] * n}
    return kw.JobTable(job_id=7 + np.arange(n), **{**times, **request, **columns})


def step(simulator: GpuSimulator, decide: Callable[[GpuSimulator, int], object]) -> int:
    """Run to the end: `decide` is called for every waiting job of every instant. Return the number of instants."""
    instants = 0
    while (view := simulator.advance()) is not None:
        instants += 1
        for number in view.waiting["number"].tolist():
            decide(simulator, number)
    return instants


def start_none(simulator: GpuSimulator, number: int) -> None:
    """Start no job."""


class StartsNone:
    """A round-based policy that starts no job."""

    name = "lazy"
    gpu_settings = tuple(ROUNDS.items())

    def run(self, inputs: kw.RunInputs) -> kw.ExecutionLog:
        """Step through the run without a start."""
        simulator = GpuSimulator(inputs.jobs, inputs.cluster, inputs.settings, scheduler=self.name)
        step(simulator, start_none)
        return simulator.log(self.name)


@pytest.mark.parametrize("settings", [{}, ROUNDS, {"round_interval_s": 1.0}])
def test_scheduler_that_starts_no_job(settings: dict[str, object]) -> None:
    simulator = GpuSimulator(table(), CLUSTER, GpuSettings(**settings), scheduler="mine")
    with pytest.raises(NoProgressError) as caught:
        step(simulator, start_none)
    text = str(caught.value)
    assert text.startswith("policy 'mine'") and "start a waiting job whenever the cluster is idle" in text
    assert "job 7, which needs 1 x (2 GPUs, 3 cores, 500 MB), and 1 more wait, nothing runs" in text
    assert ("has started none in 10,000 rounds" in text) == bool(settings)


def test_policy_that_starts_no_job_is_named() -> None:
    with pytest.raises(NoProgressError, match="policy 'lazy' has started none .* job 7, which needs"):
        kw.simulate(table(1), CLUSTER, StartsNone(), gpu_speeds="none")


def test_scheduler_may_wait_for_many_rounds() -> None:
    simulator = GpuSimulator(table(1), CLUSTER, GpuSettings(**ROUNDS))
    last_s = (MAX_IDLE_ROUNDS - 1) * 360.0
    step(simulator, lambda simulator, number: simulator.view().now_s >= last_s and simulator.start(number))
    assert simulator.log().jobs()["start_s"].tolist() == [last_s]


def test_rounds_before_another_event_do_not_count() -> None:
    late = table(2, submit_s=[0.0, 4e6])  # more than MAX_IDLE_ROUNDS rounds apart
    simulator = GpuSimulator(late, CLUSTER, GpuSettings(**ROUNDS))
    step(simulator, lambda simulator, number: simulator.view().now_s >= 4e6 and simulator.start(number))
    assert (simulator.log().job_outcome == 1).all()
    cancelled = GpuSimulator(table(1, cancel_s=[4e6]), CLUSTER, GpuSettings(**ROUNDS))
    step(cancelled, start_none)
    assert cancelled.log().job_outcome.tolist() == [3]


def speed(value: float, n: int) -> Speeds:
    """The same speed for every job."""
    return Speeds(("V100",), np.full((1, n), value), np.ones((1, n)), np.ones((1, n), np.int8))


@pytest.mark.parametrize("policy", ["fcfs", "las", "gavel"])
@pytest.mark.filterwarnings("ignore:overflow")  # of the interpreted kernels; compiled ones do not warn
def test_job_that_would_never_end(policy: str) -> None:
    with pytest.raises(NoProgressError, match=f"job 7 under policy '{policy}' would never end: 1e.10 s of work at sp"):
        kw.simulate(table(1, runtime_s=[1e10]), CLUSTER, policy, speeds=speed(1e-300, 1))


@pytest.mark.filterwarnings("ignore:overflow")
def test_job_that_would_never_end_in_an_environment() -> None:
    with pytest.raises(NoProgressError, match="job 7 under policy 'agent' would never end"):
        run_gpu_policy(
            table(1, runtime_s=[1e10]),
            CLUSTER,
            lambda observation: observation["mask"].argmax(axis=1),
            speeds=speed(1e-300, 1),
            gpu_settings=GpuSettings(**ROUNDS),
        )


@pytest.mark.parametrize("value", [np.inf, -np.inf])
@pytest.mark.parametrize("settings", [{}, ROUNDS, {"preempt": True}])
def test_infinite_scores_end(value: float, settings: dict[str, object]) -> None:
    @kw.policy
    def infinite(job, now):  # type: ignore[no-untyped-def]
        return value if job.number % 2 else 0.0

    log = kw.simulate(table(9), CLUSTER, infinite, gpu_speeds="none", **settings)
    assert (log.job_outcome == 1).all()


def test_rounds_that_do_not_advance_the_time_are_an_error() -> None:
    with pytest.raises(InputError, match=r"round_interval_s is 1e-300; it must be 0 .* or at least 0.001 seconds"):
        GpuSettings(round_interval_s=1e-300)


def test_endless_preemption_names_the_policy() -> None:
    jobs = kw.JobTable(job_id=[1, 2], submit_s=[0, 0], runtime_s=[1000, 1000], nodes=[1, 1], gpus=[8, 8])
    one = Cluster((NodeGroup("a", 1, cores=8, gpus=8, gpu_type="V100", node_level=True),))
    lost = (
        "policy 'gavel' makes no progress: by .* s job . has lost the work of its last 5[01][0-9] starts, because jobs"
    )
    with pytest.raises(NoProgressError, match=lost):
        kw.simulate(jobs, one, "gavel", gpu_speeds="none", checkpoint_load_s=400.0)


def test_many_preemptions_that_keep_work_are_no_error() -> None:
    jobs = kw.JobTable(job_id=[1, 2], submit_s=[0, 0], runtime_s=[3000, 3000], nodes=[1, 1], gpus=[8, 8])
    one = Cluster((NodeGroup("a", 1, cores=8, gpus=8, gpu_type="V100", node_level=True),))
    log = kw.simulate(jobs, one, "las", gpu_speeds="none", preempt=True, round_interval_s=1.0, checkpoint_load_s=0.0)
    assert len(log) > 2000 and (log.job_outcome == 1).all()


def test_more_than_10_000_starts_of_a_job_that_keep_work_are_no_error() -> None:
    jobs = kw.JobTable(job_id=[1, 2], submit_s=[0, 0], runtime_s=[21_000, 21_000], nodes=[1, 1], gpus=[8, 8])
    one = Cluster((NodeGroup("a", 1, cores=8, gpus=8, gpu_type="V100", node_level=True),))
    log = kw.simulate(jobs, one, "las", gpu_speeds="none", round_interval_s=1.0, checkpoint_load_s=0.0)
    assert np.bincount(log.job).min() > 10_000 and (log.job_outcome == 1).all()


def test_a_job_that_loses_all_its_work_again_and_again_is_an_error_although_others_progress() -> None:
    """Short jobs, each of which completes, preempt job 1 before its first checkpoint."""
    count = 10_050
    jobs = kw.JobTable(
        job_id=np.arange(count + 1),
        submit_s=[0.0, *(1.0 + 10.0 * np.arange(count))],
        runtime_s=[1000.0, *([1.0] * count)],
        nodes=[1] * (count + 1),
        gpus=[8] * (count + 1),
        priority=[0.0, *([1.0] * count)],
    )
    one = Cluster((NodeGroup("a", 1, cores=8, gpus=8, gpu_type="V100", node_level=True),))
    with pytest.raises(NoProgressError, match="job 0 has lost the work of its last 10,001 starts"):
        kw.simulate(jobs, one, "priority", gpu_speeds="none", checkpoint_s=np.inf)


def test_a_restart_costs_30_seconds_by_default() -> None:
    jobs = kw.JobTable(job_id=[1, 2], submit_s=[0, 10], runtime_s=[100, 20], nodes=[1, 1], gpus=[8, 8], priority=[0, 1])
    one = Cluster((NodeGroup("a", 1, cores=8, gpus=8, gpu_type="V100", node_level=True),))
    log = kw.simulate(jobs, one, "priority", gpu_speeds="none")
    assert log.jobs()["end_s"].tolist() == [150.0, 30.0] and log.run["checkpoint_load_s"] == 30.0
