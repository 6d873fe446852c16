"""Table of agents trained on real jobs, on synthetic jobs, and on both."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.reproduce.text_tables import table
from kilowait.evaluation.comparison import PolicyScores, Windows, pairwise_tests

__all__ = ["LOST", "compared", "text"]

REAL, WITH = "real", "+real"
LOST = 1.1
"""Tolerated loss relative to the agent trained on real jobs; above it the generator counts as insufficient."""


def compared(
    policies: Mapping[str, Sequence[float]], by_training_data: Mapping[str, Sequence[Mapping[str, Any]]], cut: Windows
) -> dict[str, Any]:
    """Agents of one algorithm on one log, compared with the one trained on real jobs and with the best policy.

    Args:
        policies: values of each priority policy, one per window.
        by_training_data: finished runs by training data, one per seed; `real` is among them.
        cut: the windows.
    """
    best = min(policies, key=lambda rule: float(np.mean(policies[rule])))
    values = {
        training_data: np.mean([run["values"] for run in runs], axis=0)
        for training_data, runs in by_training_data.items()
    }
    names = (best, *values)
    scores = PolicyScores("mean_bsld", names, np.array([policies[best], *values.values()]), overlap=cut.overlap)
    tests = pairwise_tests(scores, seed=0)
    rows = {}
    for training_data, runs in by_training_data.items():
        row: dict[str, Any] = {
            "mean_bsld": float(values[training_data].mean()),
            "by_seed": [float(np.mean(run["values"])) for run in runs],
            "cpu_s": float(np.mean([run["cpu_s"] for run in runs])),
            "went": [run.get("went") for run in runs],
        }
        for name, baseline in (("of_real", REAL), ("of_best_rule", best)):
            pair = None if training_data == baseline else tests.pair(training_data, baseline)
            row[name] = 1.0 if pair is None else pair.ratio
            row[f"{name}_interval"] = None if pair is None else [pair.low, pair.high]
            row[f"{name}_verdict"] = "" if pair is None else pair.verdict
        rows[training_data] = row
    return {
        "windows": len(cut),
        "words": cut.description,
        "best_rule": best,
        "best_rule_mean_bsld": float(np.mean(policies[best])),
        "rows": rows,
    }


def text(output: Mapping[str, Any]) -> str:
    """The table, and a summary of where synthetic training data was sufficient."""
    lines = []
    for log, algos in output["logs"].items():
        for algo, comparison in algos.items():
            best = f"{comparison['best_rule']} {comparison['best_rule_mean_bsld']:.2f}"
            for training_data, row in comparison["rows"].items():
                lines.append(
                    [
                        f"{log}, {algo.upper()}, {_display_name(training_data)}",
                        f"{row['mean_bsld']:.2f}",
                        "" if training_data == REAL else f"{row['of_real']:.3f}",
                        _interval(row["of_real_interval"]),
                        row["of_real_verdict"],
                        f"{row['of_best_rule']:.3f}",
                        _interval(row["of_best_rule_interval"]),
                        best,
                        " ".join(f"{value:.2f}" for value in row["by_seed"]),
                        ", ".join(dict.fromkeys(_search_outcome(comparison) for comparison in row["went"])),
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
        seeds = ", ".join(map(str, output["seeds"]))
        parts.append(
            f"mean bounded slowdown on later real jobs; means over seeds {seeds}; of real: over the agent of the same "
            "learner trained on real jobs (below 1 is better); where a search went nowhere, the agent plays the score "
            "it began at, with what it remembers"
        )
        parts.append("\n".join(summary(output["logs"])))
    if output["missing"]:
        parts.append(f"{len(output['missing'])} cells are missing: {', '.join(output['missing'])}")
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
    losses = []
    for log, algos in logs.items():
        for algo, comparison in algos.items():
            for training_data, row in comparison["rows"].items():
                if training_data == REAL:
                    continue
                by_case.setdefault((algo, training_data), []).append(row)
                if not training_data.endswith(WITH) and row["of_real"] > LOST:
                    low, high = row["of_real_interval"]
                    words = f"{row['of_real']:.2f} ({low:.2f} to {high:.2f}), {row['of_real_verdict']}"
                    losses.append(f"{log}, {algo.upper()}, {training_data}: {words}")
    lines = []
    for (algo, training_data), rows in by_case.items():
        mean = math.exp(float(np.mean([math.log(row["of_real"]) for row in rows])))
        counts = ", ".join(
            f"{word} {sum(row['of_real_verdict'] == word for row in rows)}"
            for word in ("better", "same", "undecided", "worse")
        )
        within_tolerance = sum(row["of_real"] <= LOST for row in rows)
        count = f"{len(rows)} log" + ("" if len(rows) == 1 else "s")
        lines.append(
            f"{algo.upper()} on {_display_name(training_data)}: {mean:.3f} of real (geometric mean of {count}); "
            f"within 10 % on {within_tolerance}, {counts}"
        )
    loss_text = "; ".join(losses) or "nowhere"
    return [*lines, f"loss above 10 % with synthetic jobs alone: {loss_text}"]


def _display_name(training_data: str) -> str:
    """The display name of the training data of an agent.

    >>> _display_name("real"), _display_name("copula"), _display_name("copula+real")
    ('real', 'copula alone', 'copula and real')
    """
    if training_data == REAL:
        return training_data
    return f"{training_data.removesuffix(WITH)} and real" if training_data.endswith(WITH) else f"{training_data} alone"


def _search_outcome(provenance: Mapping[str, Any] | None) -> str:
    """How far CMA-ES moved from its initial policy; empty for networks.

    >>> (_search_outcome({"start": "default", "accepted_step": 0.0, "fallback_policy": None}), _search_outcome(None))
    ('nowhere', '')
    """
    if provenance is None:
        return ""
    if provenance["fallback_policy"] is not None:
        return f"kept {provenance['fallback_policy']}"
    return {0.0: "nowhere", 0.5: "half the way", 1.0: "all the way"}[provenance["accepted_step"]]


def _interval(ends: Sequence[float] | None) -> str:
    return "" if ends is None else f"{ends[0]:.2f} to {ends[1]:.2f}"
