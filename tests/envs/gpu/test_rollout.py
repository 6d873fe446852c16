"""Whole runs on GPU clusters with decisions from observations."""

import numpy as np
import pytest

import kilowait as kw
from kilowait.engine.gpu.settings import GpuSettings
from kilowait.envs.gpu.batched_sim import GpuDecisionSettings
from kilowait.envs.gpu.rollout import run_gpu_policy
from tests.envs.gpu.workloads import (
    crowded,
    gpu_env,
    log_of,
    machine,
    same,
    speeds_of,
    usual,
)


def shortest(seen):
    """Shortest estimate first, with the default placement: `length` is the first feature."""
    rows, mask = seen["jobs"][0], seen["mask"][0]
    choices = len(mask) // len(rows)
    scores = np.where(mask[: len(rows) * choices : choices] == 1, rows[:, 0], np.inf)
    return np.array([int(np.argmin(scores)) * choices])


@pytest.mark.parametrize("seed", range(4))
def test_sjf_from_observations_matches_sjf(seed):
    jobs = crowded(120, seed)
    assert len(np.unique(np.float32(np.log(jobs["estimate_s"])))) == len(np.unique(jobs["estimate_s"]))
    placing = usual(gpu_type_order="fastest")
    log = run_gpu_policy(jobs, machine(), shortest, gpu_settings=placing, speeds=speeds_of(jobs))
    assert same(log, kw.simulate(jobs, machine(), "sjf", settings=placing, speeds=speeds_of(jobs)))
    assert log.run["policy"] == "agent"


def test_cancelled_and_refused_jobs_and_any_order_of_rows():
    jobs = crowded(120, 5)
    jobs = jobs.with_columns(
        cancel_s=np.where(np.arange(120) % 5 == 4, jobs["submit_s"] + 60, np.inf),
        begin_s=np.where(np.arange(120) % 7 == 2, jobs["submit_s"] + 100.0, -np.inf),
        cores=np.where(np.arange(120) == 50, 99, jobs["cores"]),
    )
    rows = np.random.default_rng(0).permutation(120)
    jobs, speeds = jobs[rows], speeds_of(jobs[rows])
    log = run_gpu_policy(jobs, machine(), shortest, gpu_settings=usual(on_oversized="drop"), speeds=speeds)
    rule = kw.simulate(jobs, machine(), "sjf", "skip", on_oversized="drop", speeds=speeds)
    assert same(log, rule) and np.array_equal(log.job_outcome, rule.job_outcome)
    assert len(np.unique(rule.job_outcome)) == 3


def test_episode_matches_run_of_the_same_jobs():
    jobs = crowded(60, 6)
    how = {"preempt": True, "victims": 5, "queue_window": 10, "placements": ("best", "worst")}
    placing = GpuSettings(grace_s=3.0, checkpoint_load_s=9.0, checkpoint_s=50.0)

    def drawn():
        random = np.random.default_rng(4)
        return lambda seen: np.array([random.choice(np.flatnonzero(seen["mask"][0]))])

    vec = gpu_env(jobs, gpu_settings=placing, **how)
    seen, _ = vec.reset()
    decide, over = drawn(), False
    while not over:
        seen, _, ended, _, _ = vec.step(decide(seen))
        over = bool(ended[0])
    log = run_gpu_policy(
        jobs, machine(), drawn(), decision_settings=GpuDecisionSettings(**how), gpu_settings=placing
    )
    assert same(log, log_of(vec)) and (log.outcome == 5).any()
