"""An environment with two objectives, mean slowdown over jobs and over users, and a known Pareto front.

One node, five jobs at once: four of an hour, of one user, and one of 1.05 to 1.95 hours, of another. The sum of
weighted slowdowns is least if jobs go by run time squared over weight (Smith's rule), so the long one goes first or
last, and the more fairness counts, the longer it may be and still go first.
"""

from __future__ import annotations

import numpy as np

import kilowait as kw

LONG_H = (1.05, 1.2, 1.35, 1.5, 1.65, 1.8, 1.95)


def two_users() -> tuple[kw.JobTable, kw.Cluster, np.ndarray]:
    """The log, the machine, and the rows at which episodes begin."""
    groups = 10 * len(LONG_H)
    runtime = np.ones((groups, 5))
    runtime[:, 2] = np.tile(LONG_H, 10)
    user = np.zeros((groups, 5), np.int64)
    user[:, 2] = 1
    jobs = kw.JobTable(
        job_id=np.arange(5 * groups),
        submit_s=np.repeat(np.arange(groups) * 86400.0, 5),
        runtime_s=3600.0 * runtime.ravel(),
        nodes=np.ones(5 * groups, np.int64),
        user=user.ravel(),
    )
    return jobs, kw.Cluster.from_nodes(1), 5 * np.arange(len(LONG_H))


def best_metrics(jobs: kw.JobTable, first: np.ndarray, preferences: np.ndarray) -> np.ndarray:
    """(preferences, episodes, 2) slowdown and fairness, less 1, of the best order under each preference."""
    metrics = np.zeros((len(preferences), len(first), 2))
    for episode, row in enumerate(first):
        run = jobs["runtime_s"][row : row + 5]
        term_weights = np.stack([np.full(5, 1 / 5), np.where(jobs["user"][row : row + 5] == 1, 1 / 2, 1 / 8)])
        for row, preference in enumerate(preferences):
            order = np.argsort(run**2 / (preference @ term_weights), kind="stable")
            wait = np.zeros(5)
            wait[order] = np.cumsum(run[order]) - run[order]
            metrics[row, episode] = term_weights @ (wait / run)
    return metrics
