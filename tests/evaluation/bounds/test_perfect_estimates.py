from __future__ import annotations

import kilowait as kw
from kilowait.evaluation.bounds import with_perfect_estimates
from tests.evaluation.bounds.workloads import table


def test_only_estimates_change():
    jobs = table((0, 60, 4), (5, 0, 1), estimate_s=[9, 7], user=[3, 4])
    perfect = with_perfect_estimates(jobs)
    assert perfect["estimate_s"].tolist() == [60, 0]
    for name in jobs.columns:
        if name != "estimate_s":
            assert perfect[name].tolist() == jobs[name].tolist()
    assert jobs["estimate_s"].tolist() == [9, 7]


def test_predictions_and_limits_are_removed():
    jobs = table((0, 60, 4), estimate_s=[9], planned_s=[7], limit_s=[8], overrun_planned_s=[20])
    assert with_perfect_estimates(jobs).columns == table((0, 60, 4)).columns


def test_perfect_estimates_allow_backfilling():
    """The small job fits before the start of the large one, which only its true run time shows."""
    jobs = table((0, 100, 3), (1, 10, 4), (2, 50, 1), estimate_s=[100, 10, 500])
    cluster = kw.Cluster.from_nodes(4)
    starts = [
        kw.simulate(variant, cluster, policy="fcfs", backfill="easy").jobs()["start_s"][2]
        for variant in (jobs, with_perfect_estimates(jobs))
    ]
    assert starts == [110, 2]
