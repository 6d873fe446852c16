"""Workloads for environment tests, and policies run through the environments."""

from __future__ import annotations

import numpy as np

import kilowait as kw
from kilowait.cluster import Cluster, NodeGroup
from kilowait.jobs import JobTable


def crowded(jobs: int, seed: int, nodes: int = 16) -> JobTable:
    """Short, crowded, with ties: many jobs wait at once."""
    random = np.random.default_rng(seed)
    return JobTable(
        job_id=np.arange(jobs),
        submit_s=np.sort(random.integers(0, jobs * 20, jobs)),
        runtime_s=random.integers(1, 400, jobs),
        estimate_s=random.integers(1, 60, jobs) * 10,
        nodes=random.integers(1, nodes + 1, jobs),
        user=random.integers(0, 5, jobs),
        queue=random.integers(0, 2, jobs),
    )


def planned(jobs: JobTable, seed: int) -> JobTable:
    """The jobs with planned run times, limits and overrun times, each for some of them."""
    random = np.random.default_rng(seed)

    def some(times: float) -> np.ndarray:
        values = np.ceil(jobs["runtime_s"] * random.uniform(0.3, 1.2, len(jobs)) * times)
        return np.where(random.random(len(jobs)) < 0.7, values, np.nan)

    return jobs.with_columns(planned_s=some(1.0), overrun_planned_s=some(1.5), limit_s=some(2.0))


def two_groups() -> Cluster:
    return Cluster(
        name="two", groups=[NodeGroup("a", nodes=10), NodeGroup("b", nodes=16)], queues={"0": ["a", "b"], "1": ["b"]}
    )


def smallest(scores: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """The allowed slot of the smallest score in each copy, ties to the first."""
    return np.argmin(np.where(mask[:, : scores.shape[1]] == 1, scores, np.inf), axis=1)


def run_window(vec, scores, first: int) -> np.ndarray:
    """Run the window from row `first` in copy 0 by `scores` (one per job of the log); returns start times."""
    assert vec.num_envs == 1
    vec.reset(options={"first": first})
    over = False
    while not over:
        a = vec.simulator.buffers
        shown = int(a.copies["shown"][0])
        slot = np.full(vec.decision_settings.queue_window, np.inf)
        slot[:shown] = scores[first + a.slots[0, :shown]]
        slot[a.mask[0, : vec.decision_settings.queue_window] == 0] = np.inf
        over = bool(vec.step(np.array([int(np.argmin(slot))]))[2][0])
    return vec.simulator.states.job_state["start_s"][0].copy()


def decided_by(static_scores):
    """A decision function for `run_policy`: the allowed slot of the smallest score of the features."""

    def decide(observation):
        scores = static_scores(observation["jobs"][0])
        return np.array([int(np.argmin(np.where(observation["mask"][0, : len(scores)] == 1, scores, np.inf)))])

    return decide


def started(window: JobTable, cluster: Cluster, **settings) -> np.ndarray:
    return kw.simulate(
        window, cluster, **{"backfill": "none", "dependencies": False, "on_oversized": "drop", **settings}
    ).jobs()["start_s"]
