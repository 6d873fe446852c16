"""What came out of a comparison, as plain data: for a terminal, for JSON and for the folder."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from kilowait.engine.job_times import resolve_job_times
from kilowait.errors import InputError
from kilowait.evaluation.bounds import lower_bounds
from kilowait.evaluation.comparison import Comparison, EnergyResults

__all__ = ["results_of"]

INTERVALS = ("mean_bsld", "mean_wait_s")
"""Metrics whose means are given with an interval, besides the one that is asked for."""
SAVED = ("energy_kwh", "facility_kwh", "co2_kg", "cost", "peak_kw")
"""Metrics of which it is said what share is saved against the first contender."""


def results_of(contest: Comparison, metric: str, *, seed: int, bounds: bool = True) -> dict[str, Any]:
    """What came out, as plain data: means with intervals, pairs with verdicts, sentences, limits."""
    judged = {name: contest.significance(name, seed=seed) for name in dict.fromkeys((metric, *INTERVALS))}
    main = judged[metric]
    rows: list[dict[str, Any]] = []
    for number, contender in enumerate(contest.policies):
        rows.append(
            {
                "policy": contender.policy,
                "backfill": contender.backfill,
                "placement": contest.logs(number, 0).run.get("placement"),
                "power_controls": contender.power_controls,
                "kind": contender.kind,
                "label": contender.label,
                "metrics": _averages(contest.table[number]),
                "intervals": {
                    name: {key: value for key, value in asdict(mean).items() if key != "contender"}
                    for name, judgement in judged.items()
                    for mean in judgement.means
                    if mean.policy == contender.label
                },
            }
        )
    if contest.energy is not None:
        for row in rows:
            row["saved"] = _saved(rows[0]["metrics"], row["metrics"])
    ours = _ours(contest) or main.best
    others = [mean.policy for mean in main.ranked() if mean.policy != ours]
    return {
        "trace": contest.trace,
        "nodes": contest.nodes,
        "node_level": _is_placed(contest),
        "windows": len(contest.windows),
        "cut": contest.windows.description,
        "overlap": contest.windows.overlap,
        "counted_jobs": int(contest.windows.size.sum()),
        "metric": metric,
        "rows": rows,
        "judgement": main.to_dict(),
        "sentences": [main.pair(ours, other).sentence() for other in others],
        "gap_closed": contest.gap_closed(metric),
        "lower_bounds": _bounds(contest) if bounds else {},
        "notes": [*contest.notes, *main.notes],
        **({} if contest.energy is None else {"energy": _energy(contest, contest.energy)}),
    }


def _is_placed(contest: Comparison) -> bool:
    return any(group.get("node_level", False) for group in contest.cluster.get("group", ()))


def _saved(first: Mapping[str, float], other: Mapping[str, float]) -> dict[str, float]:
    """Shares of what the first contender took that another did not take; NaN where the first took nothing."""
    return {
        name: 1 - other[name] / first[name] if first[name] > 0 else math.nan
        for name in SAVED
        if name in first
    }


def _energy(contest: Comparison, drew: EnergyResults) -> dict[str, Any]:
    return {
        "kwh_by_state": dict(zip(contest.labels, map(dict, drew.states), strict=True)),
        "signals": {
            signal.name: {"unit": signal.unit, "words": signal.description} for signal in drew.signals
        },
        "notes": list(drew.notes),
    }


def _ours(contest: Comparison) -> str | None:
    """The agent, where there is one: what people ask is how it fares against the rules."""
    agents = [contender.label for contender in contest.policies if contender.kind == "agent"]
    return agents[0] if len(agents) == 1 else None


def _averages(windows: Sequence[Mapping[str, float | int]]) -> dict[str, float | int]:
    """Of one window its metrics as they are; of several their means over those that have them."""
    if len(windows) == 1:
        return dict(windows[0])
    found: dict[str, float | int] = {}
    for name in windows[0]:
        values = [float(window[name]) for window in windows if not math.isnan(window[name])]
        found[name] = sum(values) / len(values) if values else math.nan
    return found


def _bounds(contest: Comparison) -> dict[str, float]:
    """Below which no schedule of these windows can come, on average; nothing where that is not known."""
    groups = contest.cluster.get("group", ())
    if any(group.get("shared", False) or group.get("node_level", False) for group in groups):
        return {}  # jobs there take parts of nodes
    kill = contest.logs(0, 0).run.get("at_limit") == "kill"
    found = []
    for window in contest.windows:
        jobs = window.jobs[window.warmup :]
        if kill:
            jobs = jobs.with_columns(runtime_s=resolve_job_times(jobs, "kill").run_s)
        try:
            found.append(asdict(lower_bounds(jobs, contest.nodes)))
        except InputError:  # jobs that may be withdrawn, or are larger than the machine
            return {}
    return {name: sum(bound[name] for bound in found) / len(found) for name in found[0]}
