"""Rules side by side: the same jobs on the same machine, one run after another."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from kilowait.cluster import Cluster
from kilowait.engine.ports import Rule
from kilowait.engine.settings import Settings
from kilowait.errors import InputError
from kilowait.evaluation import Metrics, metrics
from kilowait.experiments.inputs import parse_backfill
from kilowait.experiments.runfolder import plain_json, save_folder
from kilowait.experiments.scenario import resolve_policy
from kilowait.experiments.toml import to_toml
from kilowait.jobs import JobTable
from kilowait.policies import simulate

__all__ = ["JUDGED", "Compared", "best", "compare", "pairs_of", "save_comparison", "sorted_rows"]

JUDGED: dict[str, str] = {
    "mean_wait_s": "less",
    "median_wait_s": "less",
    "p95_wait_s": "less",
    "mean_bsld": "less",
    "utilization": "more",
    "makespan_s": "less",
}
"""The metrics a comparison shows, and whether more or less of each is better."""

Pair = tuple[str, Rule, str | int]


@dataclass(frozen=True)
class Compared:
    """One run of a comparison."""

    policy: str
    backfill: str | int
    metrics: Metrics

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {"policy": self.policy, "backfill": self.backfill, "metrics": dict(self.metrics)}


def pairs_of(policies: str | Sequence[str], backfills: str | Sequence[str]) -> list[Pair]:
    """Every policy with every kind of backfilling; names are checked here, before anything runs.

    >>> [(name, backfill) for name, _, backfill in pairs_of("fcfs,sjf", "none,2")]
    [('fcfs', 'none'), ('fcfs', 2), ('sjf', 'none'), ('sjf', 2)]
    """
    rules = [(name, resolve_policy(name)) for name in _listed("policies", policies)]
    depths = [parse_backfill(text) for text in _listed("kinds of backfilling", backfills)]
    for depth in depths:
        Settings(backfill=depth)
    return [(name, rule, depth) for name, rule in rules for depth in depths]


def _listed(what: str, given: str | Sequence[str]) -> list[str]:
    names = [name.strip() for name in (given.split(",") if isinstance(given, str) else given)]
    names = [name for name in dict.fromkeys(names) if name]
    if not names:
        raise InputError(f"the list of {what} is empty; name at least one, with commas between")
    return names


def compare(
    jobs: JobTable,
    cluster: Cluster,
    pairs: Iterable[Pair],
    *,
    before: Callable[[str, str | int], None] | None = None,
    **rules: Any,
) -> list[Compared]:
    """Run every pair of `pairs_of`; `before` hears of each, `rules` are `kilowait.simulate`'s.

    >>> from kilowait.synth import lublin
    >>> rows = compare(lublin(50, 16), Cluster.from_nodes(16), pairs_of("fcfs,sjf", "easy"))
    >>> [row.policy for row in rows]
    ['fcfs', 'sjf']
    """
    rows = []
    for name, rule, backfill in pairs:
        if before is not None:
            before(name, backfill)
        rows.append(Compared(name, backfill, metrics(simulate(jobs, cluster, rule, backfill, **rules))))
    return rows


def best(rows: Sequence[Compared], name: str) -> float:
    """The best value of a metric in the rows; NaN where there is none."""
    known = [row.metrics[name] for row in rows if not math.isnan(row.metrics[name])]
    if not known:
        return math.nan
    return min(known) if JUDGED[name] == "less" else max(known)


def sorted_rows(rows: Sequence[Compared], name: str) -> list[Compared]:
    """Best first by a metric; equals keep their order, rows without it come last."""
    sign = 1.0 if JUDGED[name] == "less" else -1.0
    return sorted(rows, key=lambda row: (math.isnan(row.metrics[name]), sign * row.metrics[name]))


def save_comparison(
    path: str | PathLike[str],
    *,
    scenario: Mapping[str, Any],
    results: Mapping[str, Any],
    manifest: Mapping[str, Any] | None = None,
    force: bool = False,
) -> Path:
    """Write scenario.toml, results.json and manifest.json to a folder, whole or not at all."""

    def fill(folder: Path) -> None:
        (folder / "scenario.toml").write_text(to_toml(scenario), encoding="utf-8")
        (folder / "results.json").write_text(plain_json(results) + "\n", encoding="utf-8")

    return save_folder(path, fill, kind="comparison", manifest=manifest, force=force)
