"""What the folder on a log's predicted run times tells, read back and in words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kilowait.evaluation.storage.folder import known
from kilowait.report.format import number, share
from kilowait.units import format_span

__all__ = ["CLASSES", "PredictionReportData", "factor", "job_sentences", "what_if_sentences"]

CLASSES = {
    "size": ("By nodes", "nodes"),
    "request": ("By what the user asked for", "request"),
    "user": ("By how many jobs of the user had ended before", "ended jobs"),
}
SAFE = 0.9
"""The level whose bound is spoken of."""
SLIGHT = 1.05
"""Factors nearer to 1 than this change nothing that is worth a sentence."""
FEW = 3


@dataclass(frozen=True)
class PredictionReportData:
    """Predicted run times of a log."""

    name: str
    """Of the folder."""
    told: Mapping[str, Any]
    """As it stands in results.json under ``foresight``."""

    @property
    def trace(self) -> str:
        """The log."""
        return str(self.told["trace"])

    @property
    def scores(self) -> list[dict[str, Any]]:
        """Predictions and what is held against them; those that there are."""
        return [known(row) for row in self.told["scores"] if row["jobs"]]

    def score(self, name: str) -> dict[str, Any] | None:
        """The figures of one; None where the log has none."""
        return next((row for row in self.scores if row["name"] == name), None)

    @property
    def importance(self) -> Sequence[Mapping[str, Any]]:
        """Every feature, weightiest first."""
        rows: Sequence[Mapping[str, Any]] = self.told["importance"]["rows"]
        return rows

    def sentences(self) -> list[str]:
        """What came of it, most important first."""
        told = self.told
        forest = self.score("forest")
        assert forest is not None  # a folder without predictions is not written
        said = [
            f"Of {int(told['jobs']):,} jobs the last {int(told['judged']):,} are looked at. Each was predicted when it "
            "was submitted, by a forest of decision trees that had seen only jobs that had ended by then."
        ]
        others = [row for row in self.scores if row["name"] != "forest"]
        best = max(others, key=lambda row: float(row["accuracy"]))
        gain = float(forest["accuracy"]) - float(best["accuracy"])
        verdict = "no better" if gain <= 0 else "better"
        said.append(
            f"The prediction is {share(float(forest['accuracy']))} accurate (the shorter of prediction and truth over "
            f"the longer, on average), {verdict} than the best of the simpler guesses, {best['words']}, with "
            f"{share(float(best['accuracy']))}."
        )
        asked = self.score("request")
        if asked is not None and best["name"] != "request":
            said.append(f"What users ask for is {share(float(asked['accuracy']))} accurate.")
        held = next((row for row in told["calibration"] if row["level"] == SAFE), None)
        if held is not None:
            said.append(
                f"{share(float(forest['underprediction_rate']))} of the jobs took longer than "
                f"their prediction. Where that would hurt "
                f"a bound is taken instead: the one that is to hold for {100 * SAFE:.0f} % of the jobs held for "
                f"{share(float(held['calibrated']))}."
            )
        return said


def factor(moved: float) -> str:
    """What a contribution does to a time; sign and number stay on one line.

    >>> factor(0.6931), factor(-0.6931), factor(0.0)
    ('×\\xa02.00', '×\\xa00.500', '×\\xa01.00')
    """
    return f"×\N{NO-BREAK SPACE}{number(math.exp(moved))}"


def job_sentences(case: Mapping[str, Any]) -> list[str]:
    """A job and its prediction, in words."""
    nodes = int(case["nodes"])
    asked = (
        "" if case["request_s"] is None else f", for which {format_span(case['request_s'])} were asked for"
    )
    true_s, likely_s = float(case["true_s"]), float(case["likely_s"])
    ratio = likely_s / true_s
    far = f"{number(max(ratio, 1 / ratio))} times too {'long' if ratio > 1 else 'short'}"
    far = "about right" if 1 / SLIGHT < ratio < SLIGHT else far
    low, middle, high = (float(case["quantiles_s"][level]) for level in ("0.1", "0.5", "0.9"))
    said = [
        f"Job {int(case['job_id'])}, of {nodes:,} node{'' if nodes == 1 else 's'}{asked}. It was predicted to take "
        f"{format_span(likely_s)} and took {format_span(true_s)}: the prediction was {far}.",
        f"The forest held that one such job in ten takes less than {format_span(low)}, half of them less than "
        f"{format_span(middle)}, and nine in ten less than {format_span(high)}.",
        f"It began with the anchor, what jobs like it took before: {format_span(float(case['anchor_s']))}. All that "
        f"was known of the job together made {format_span(float(case['centre_s']))} of it on average, by which rules "
        "put jobs in order.",
    ]
    parts = [part for part in case["parts"] if abs(float(part["moved"])) > math.log(SLIGHT)]
    for words, sign in (("longer", 1), ("shorter", -1)):
        named = [part for part in parts if sign * float(part["moved"]) > 0][:FEW]
        if named:
            told = "; ".join(
                f"{part['name']}, {part['words']} ({factor(float(part['moved']))})" for part in named
            )
            said.append(f"What made it {words} most: {told}.")
    return said


def what_if_sentences(case: Mapping[str, Any]) -> list[str]:
    """What would have changed the prediction, its mean, in words."""
    centre_s = float(case["centre_s"])
    changes = [
        part
        for part in case["parts"]
        if abs(math.log(float(part["if_usual_s"]) / centre_s)) > math.log(SLIGHT)
    ]
    if not changes:
        return [
            "No single one of these numbers would have changed it much, had it been as usual: they say the same thing "
            "together."
        ]
    changes.sort(key=lambda part: -abs(math.log(float(part["if_usual_s"]) / centre_s)))
    return [
        f"Had {part['name']} been {part['usual']}, as is usual, instead of {part['words']}, and all else the same: "
        f"{format_span(float(part['if_usual_s']))} instead of {format_span(centre_s)}."
        for part in changes[:FEW]
    ]
