"""Comparisons: which is best, and in which order."""

from __future__ import annotations

import math

import kilowait as kw
from kilowait.experiments.compare import Compared, best, compare, pairs_of, sorted_rows


def row(policy: str, wait: float, utilization: float = 0.5) -> Compared:
    return Compared(policy, "easy", {"mean_wait_s": wait, "utilization": utilization})


def test_best_and_order():
    rows = [row("a", math.nan, 0.3), row("b", 5.0, 0.9), row("c", 2.0, 0.1), row("d", 2.0)]
    assert best(rows, "mean_wait_s") == 2.0 and best(rows, "utilization") == 0.9
    assert [r.policy for r in sorted_rows(rows, "mean_wait_s")] == ["c", "d", "b", "a"]
    assert [r.policy for r in sorted_rows(rows, "utilization")] == ["b", "d", "a", "c"]
    assert math.isnan(best(rows[:1], "mean_wait_s"))


def test_pairs_are_given_once():
    assert [(p, b) for p, _, b in pairs_of(["sjf", "sjf", " fcfs"], "easy,easy")] == [
        ("sjf", "easy"),
        ("fcfs", "easy"),
    ]


def test_who_listens_hears_of_every_run():
    heard: list[tuple[str, str | int]] = []
    rows = compare(
        kw.lublin(40, 16, load=1.2),
        kw.Cluster.from_nodes(16),
        pairs_of("fcfs,sjf", "none,easy"),
        before=lambda policy, backfill: heard.append((policy, backfill)),
        walltime="kill",
    )
    assert heard == [(r.policy, r.backfill) for r in rows]
    assert len(heard) == 4
