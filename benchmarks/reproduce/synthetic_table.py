"""Table of agents trained on real jobs, on synthetic jobs, and on both."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.reproduce.text_tables import table
from kilowait.evaluation.comparison import PolicyScores, Windows
from kilowait.evaluation.comparison import pairwise_tests as judged_scores

__all__ = ["LOST", "compared", "text"]

REAL, WITH = "real", "+real"
LOST = 1.1
"""Tolerated loss relative to the agent trained on real jobs; above it the generator counts as insufficient."""


def compared(
    rules: Mapping[str, Sequence[float]], by_what: Mapping[str, Sequence[Mapping[str, Any]]], cut: Windows
) -> dict[str, Any]:
    """Agents of one algorithm on one log, compared with the one trained on real jobs and with the best policy.

    Args:
        rules: values of each rule, a window each.
        by_what: of what agents were trained on, the finished runs, a seed each; `real` is among them.
        cut: the windows.
    """
    best = min(rules, key=lambda rule: float(np.mean(rules[rule])))
    values = {what: np.mean([run["values"] for run in runs], axis=0) for what, runs in by_what.items()}
    contenders = (best, *values)
    scores = PolicyScores(
        "mean_bsld", contenders, np.array([rules[best], *values.values()]), overlap=cut.overlap
    )
    verdicts = judged_scores(scores, seed=0)
    rows = {}
    for what, runs in by_what.items():
        row: dict[str, Any] = {
            "mean_bsld": float(values[what].mean()),
            "by_seed": [float(np.mean(run["values"])) for run in runs],
            "cpu_s": float(np.mean([run["cpu_s"] for run in runs])),
            "went": [run.get("went") for run in runs],
        }
        for name, against in (("of_real", REAL), ("of_best_rule", best)):
            pair = None if what == against else verdicts.pair(what, against)
            row[name] = 1.0 if pair is None else pair.ratio
            row[f"{name}_interval"] = None if pair is None else [pair.low, pair.high]
            row[f"{name}_verdict"] = "" if pair is None else pair.verdict
        rows[what] = row
    return {
        "windows": len(cut),
        "words": cut.description,
        "best_rule": best,
        "best_rule_mean_bsld": float(np.mean(rules[best])),
        "rows": rows,
    }


def text(found: Mapping[str, Any]) -> str:
    """The table, and a summary of where synthetic training data was sufficient."""
    lines = []
    for log, algos in found["logs"].items():
        for algo, one in algos.items():
            best = f"{one['best_rule']} {one['best_rule_mean_bsld']:.2f}"
            for what, row in one["rows"].items():
                lines.append(
                    [
                        f"{log}, {algo.upper()}, {_told(what)}",
                        f"{row['mean_bsld']:.2f}",
                        "" if what == REAL else f"{row['of_real']:.3f}",
                        _interval(row["of_real_interval"]),
                        row["of_real_verdict"],
                        f"{row['of_best_rule']:.3f}",
                        _interval(row["of_best_rule_interval"]),
                        best,
                        " ".join(f"{value:.2f}" for value in row["by_seed"]),
                        ", ".join(dict.fromkeys(_went(one) for one in row["went"])),
                        f"{row['cpu_s']:.0f}",
                    ]
                )
    heads = [
        "trained on",
        "mean bsld",
        "of real",
        "95 % interval",
        "verdict",
        "of best rule",
        "95 % interval",
        "best rule",
        "by seed",
        "search went",
        "core s",
    ]
    parts = [table(heads, lines)] if lines else ["nothing is finished yet"]
    if lines:
        seeds = ", ".join(map(str, found["seeds"]))
        parts.append(
            f"mean bounded slowdown on later real jobs; means over seeds {seeds}; of real: over the agent of the same "
            "learner trained on real jobs (below 1 is better); where a search went nowhere, the agent plays the score "
            "it began at, with what it remembers"
        )
        parts.append("\n".join(summary(found["logs"])))
    if found["missing"]:
        parts.append(f"{len(found['missing'])} cells are missing: {', '.join(found['missing'])}")
    return "\n\n".join(parts)


def summary(logs: Mapping[str, Any]) -> list[str]:
    """Results by algorithm and generator over all logs; then every case with a loss above 10 %.

    >>> row = {"of_real": 1.25, "of_real_interval": [1.1, 1.4], "of_real_verdict": "worse"}
    >>> for line in summary({"KTH-SP2": {"cma-es": {"rows": {"real": {}, "copula": row}}}}):
    ...     print(line)
    CMA-ES on copula alone: 1.250 of real (geometric mean of 1 log); within 10 % on 0, better 0, same 0, ...
    loss above 10 % with synthetic jobs alone: KTH-SP2, CMA-ES, copula: 1.25 (1.10 to 1.40), worse
    """
    by_case: dict[tuple[str, str], list[dict[str, Any]]] = {}
    lost = []
    for log, algos in logs.items():
        for algo, one in algos.items():
            for what, row in one["rows"].items():
                if what == REAL:
                    continue
                by_case.setdefault((algo, what), []).append(row)
                if not what.endswith(WITH) and row["of_real"] > LOST:
                    low, high = row["of_real_interval"]
                    words = f"{row['of_real']:.2f} ({low:.2f} to {high:.2f}), {row['of_real_verdict']}"
                    lost.append(f"{log}, {algo.upper()}, {what}: {words}")
    lines = []
    for (algo, what), rows in by_case.items():
        mean = math.exp(float(np.mean([math.log(row["of_real"]) for row in rows])))
        counts = ", ".join(
            f"{word} {sum(row['of_real_verdict'] == word for row in rows)}"
            for word in ("better", "same", "undecided", "worse")
        )
        within = sum(row["of_real"] <= LOST for row in rows)
        count = f"{len(rows)} log" + ("" if len(rows) == 1 else "s")
        lines.append(
            f"{algo.upper()} on {_told(what)}: {mean:.3f} of real (geometric mean of {count}); within 10 % on "
            f"{within}, {counts}"
        )
    told = "; ".join(lost) or "nowhere"
    return [*lines, f"loss above 10 % with synthetic jobs alone: {told}"]


def _told(what: str) -> str:
    """The display name of the training data of an agent.

    >>> _told("real"), _told("copula"), _told("copula+real")
    ('real', 'copula alone', 'copula and real')
    """
    if what == REAL:
        return what
    return f"{what.removesuffix(WITH)} and real" if what.endswith(WITH) else f"{what} alone"


def _went(told: Mapping[str, Any] | None) -> str:
    """How far CMA-ES moved from its initial policy; empty for networks.

    >>> (
    ...     _went({"start": "default", "accepted_step": 0.0, "fallback_policy": None}),
    ...     _went(None),
    ... )
    ('nowhere', '')
    """
    if told is None:
        return ""
    if told["fallback_policy"] is not None:
        return f"kept {told['fallback_policy']}"
    return {0.0: "nowhere", 0.5: "half the way", 1.0: "all the way"}[told["accepted_step"]]


def _interval(ends: Sequence[float] | None) -> str:
    return "" if ends is None else f"{ends[0]:.2f} to {ends[1]:.2f}"
