"""Whole runs on GPU clusters with decisions from observations."""

import numpy as np
import pytest

import kilowait as kw
from kilowait.engine.gpu.settings import GpuSettings
from kilowait.envs.gpu_env import GpuDecisionSettings, run_gpu_policy
from tests.envs.gpu_workloads import crowded, gpu_env, log_of, machine, same_segments, skip_settings, speeds_of


def shortest(observation):
    """Shortest estimate first, with the default placement: `length` is the first feature."""
    rows, mask = observation["jobs"][0], observation["mask"][0]
    choices = len(mask) // len(rows)
    scores = np.where(mask[: len(rows) * choices : choices] == 1, rows[:, 0], np.inf)
    return np.array([int(np.argmin(scores)) * choices])


@pytest.mark.parametrize("seed", range(4))
def test_sjf_from_observations_matches_sjf(seed):
    jobs = crowded(120, seed)
    assert len(np.unique(np.float32(np.log(jobs["estimate_s"])))) == len(np.unique(jobs["estimate_s"]))
    gpu_settings = skip_settings(gpu_type_order="fastest")
    log = run_gpu_policy(jobs, machine(), shortest, gpu_settings=gpu_settings, speeds=speeds_of(jobs))
    assert same_segments(log, kw.simulate(jobs, machine(), "sjf", settings=gpu_settings, speeds=speeds_of(jobs)))
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
    log = run_gpu_policy(jobs, machine(), shortest, gpu_settings=skip_settings(on_oversized="drop"), speeds=speeds)
    engine_log = kw.simulate(jobs, machine(), "sjf", "skip", on_oversized="drop", speeds=speeds)
    assert same_segments(log, engine_log) and np.array_equal(log.job_outcome, engine_log.job_outcome)
    assert len(np.unique(engine_log.job_outcome)) == 3


def test_episode_matches_run_of_the_same_jobs():
    jobs = crowded(60, 6)
    arguments = {"preempt": True, "victims": 5, "queue_window": 10, "placements": ("best", "worst")}
    gpu_settings = GpuSettings(grace_s=3.0, checkpoint_load_s=9.0, checkpoint_s=50.0, gpu_speeds="none")

    def random_policy():
        random = np.random.default_rng(4)
        return lambda observation: np.array([random.choice(np.flatnonzero(observation["mask"][0]))])

    vec = gpu_env(jobs, gpu_settings=gpu_settings, **arguments)
    observation, _ = vec.reset()
    decide, over = random_policy(), False
    while not over:
        observation, _, ended, _, _ = vec.step(decide(observation))
        over = bool(ended[0])
    log = run_gpu_policy(
        jobs, machine(), random_policy(), decision_settings=GpuDecisionSettings(**arguments), gpu_settings=gpu_settings
    )
    assert same_segments(log, log_of(vec)) and (log.outcome == 5).any()
