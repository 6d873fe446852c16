"""Data of a prediction report: scores, feature importance and explained predictions as sentences and tables."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kilowait.evaluation.storage.folder import null_to_nan
from kilowait.report.format import ReportColumn, ReportTable, capital, column, number, share, table_of_columns
from kilowait.units import format_duration

CLASSES = {
    "size": ("By nodes", "nodes"),
    "request": ("By requested time", "request"),
    "user": ("By number of ended jobs of the user", "ended jobs"),
}
BOUND_LEVEL = 0.9
"""The level of the upper bound that the sentences report."""
SMALL_FACTOR = 1.05
"""Factors between 1 / SMALL_FACTOR and SMALL_FACTOR are not mentioned in sentences."""
MAX_FEATURES = 3


@dataclass(frozen=True)
class PredictionReportData:
    """The run-time predictions of a log."""

    name: str
    """The name of the folder."""
    results: Mapping[str, Any]
    """The entry ``predictions`` of results.json."""

    @property
    def trace(self) -> str:
        """The name of the log."""
        return str(self.results["trace"])

    @property
    def scores(self) -> list[dict[str, Any]]:
        """Scores of the predictions and of the baselines that the log has."""
        return [null_to_nan(row) for row in self.results["scores"] if row["jobs"]]

    def score(self, name: str) -> dict[str, Any] | None:
        """The scores of one predictor; None where the log has none."""
        return next((row for row in self.scores if row["name"] == name), None)

    @property
    def importance(self) -> Sequence[Mapping[str, Any]]:
        """All features, the most important first."""
        rows: Sequence[Mapping[str, Any]] = self.results["importance"]["rows"]
        return rows

    def sentences(self) -> list[str]:
        """The results in sentences, most important first."""
        results = self.results
        forest = self.score("forest")
        assert forest is not None  # a folder without predictions is not written
        sentences = [
            f"Of {int(results['jobs']):,} jobs the last {int(results['test_jobs']):,} are evaluated. Each run time "
            "was predicted at "
            "submission, by a forest of decision trees trained only on jobs that had ended by then (walk-forward)."
        ]
        baselines = [row for row in self.scores if row["name"] != "forest"]
        best = max(baselines, key=lambda row: float(row["accuracy"]))
        gain = float(forest["accuracy"]) - float(best["accuracy"])
        comparison = "not better" if gain <= 0 else "better"
        sentences.append(
            f"The prediction is {share(float(forest['accuracy']))} accurate (the shorter of prediction and truth over "
            f"the longer, on average), {comparison} than the best baseline, {best['description']}, with "
            f"{share(float(best['accuracy']))}."
        )
        request = self.score("request")
        if request is not None and best["name"] != "request":
            sentences.append(f"User requests are {share(float(request['accuracy']))} accurate.")
        bound = next((row for row in results["calibration"] if row["level"] == BOUND_LEVEL), None)
        if bound is not None:
            sentences.append(
                f"{share(float(forest['underprediction_rate']))} of the jobs took longer than "
                f"predicted. The calibrated upper bound at the level {100 * BOUND_LEVEL:.0f} % "
                f"covered {share(float(bound['calibrated']))} of the jobs."
            )
        return sentences


def factor(log_factor: float) -> str:
    """A contribution in log space as a factor; a no-break space joins sign and number.

    >>> factor(0.6931), factor(-0.6931), factor(0.0)
    ('×\\xa02.00', '×\\xa00.500', '×\\xa01.00')
    """
    return f"×\N{NO-BREAK SPACE}{number(math.exp(log_factor))}"


def job_sentences(case: Mapping[str, Any]) -> list[str]:
    """The explanation of one prediction in sentences."""
    nodes = int(case["nodes"])
    request = "" if case["request_s"] is None else f", with {format_duration(case['request_s'])} requested"
    true_s, predicted_s = float(case["true_s"]), float(case["most_accurate_s"])
    ratio = predicted_s / true_s
    difference = f"{number(max(ratio, 1 / ratio))} times too {'long' if ratio > 1 else 'short'}"
    difference = "about right" if 1 / SMALL_FACTOR < ratio < SMALL_FACTOR else difference
    low, median, high = (float(case["quantiles_s"][level]) for level in ("0.1", "0.5", "0.9"))
    sentences = [
        f"Job {int(case['job_id'])} has {nodes:,} node{'' if nodes == 1 else 's'}{request}. It was predicted to take "
        f"{format_duration(predicted_s)} and took {format_duration(true_s)}: the prediction was {difference}.",
        f"The predicted quantiles are {format_duration(low)} (10 %), {format_duration(median)} (50 %) and "
        f"{format_duration(high)} (90 %).",
        f"The anchor, the median of earlier similar jobs, is {format_duration(float(case['anchor_s']))}. With all "
        f"features the mean prediction is {format_duration(float(case['geometric_mean_s']))}; scheduling policies "
        "order jobs by this value.",
    ]
    parts = [part for part in case["contributions"] if abs(float(part["contribution"])) > math.log(SMALL_FACTOR)]
    for words, sign in (("longer", 1), ("shorter", -1)):
        named = [part for part in parts if sign * float(part["contribution"]) > 0][:MAX_FEATURES]
        if named:
            features = "; ".join(
                f"{part['name']}, {part['value_text']} ({factor(float(part['contribution']))})" for part in named
            )
            sentences.append(f"Main features that made it {words}: {features}.")
    return sentences


def what_if_sentences(case: Mapping[str, Any]) -> list[str]:
    """Sentences on how the mean prediction would change if single features had their typical value."""
    mean_s = float(case["geometric_mean_s"])
    changes = [
        part
        for part in case["contributions"]
        if abs(math.log(float(part["predicted_with_median_s"]) / mean_s)) > math.log(SMALL_FACTOR)
    ]
    if not changes:
        return [
            "A typical value of any single feature would not have changed the prediction much: the features carry the "
            "same information."
        ]
    changes.sort(key=lambda part: -abs(math.log(float(part["predicted_with_median_s"]) / mean_s)))
    return [
        f"If {part['name']} were {part['median_text']} (typical) instead of {part['value_text']}, the prediction "
        f"would be {format_duration(float(part['predicted_with_median_s']))} instead of {format_duration(mean_s)}."
        for part in changes[:MAX_FEATURES]
    ]


# -- tables ------------------------------------------------------------------------------------------


def scores_table(data: PredictionReportData) -> ReportTable:
    """Scores of the predictions and of baselines on the same jobs."""
    rows = data.scores

    def of(name: str) -> list[float]:
        return [float(row[name]) for row in rows]

    columns = [
        column("accuracy", of("accuracy"), share, better="more"),
        column("log-RMSE", of("log_rmse"), number),
        column("mean absolute error", of("mae_s"), format_duration),
        ReportColumn("too short", [share(value) for value in of("underprediction_rate")]),
        ReportColumn("jobs", [f"{int(row['jobs']):,}" for row in rows]),
    ]
    return table_of_columns(
        f"Prediction scores on the last {int(data.results['test_jobs']):,} jobs of {data.trace}",
        "predictor",
        [capital(str(row["description"])) for row in rows],
        columns,
        marked=[place for place, row in enumerate(rows) if row["name"] == "forest"],
    )


def class_tables(data: PredictionReportData) -> list[ReportTable]:
    """Accuracy by job class."""
    return [
        ReportTable(
            caption,
            [head, "jobs", "accuracy", "accuracy of the request", "too short"],
            [
                [
                    str(row["label"]),
                    f"{int(row['jobs']):,}",
                    share(float(row["accuracy"])),
                    "–" if row["request"] is None else share(float(row["request"])),
                    share(float(row["underprediction_rate"])),
                ]
                for row in data.results["classes"][kind]
            ],
        )
        for kind, (caption, head) in CLASSES.items()
    ]


def importance_tables(data: PredictionReportData) -> tuple[ReportTable, ReportTable]:
    """The features of the predictor with their importance and meaning: those that are drawn, and the others."""
    rows = [[str(row["name"]), factor(float(row["mean"])), str(row["meaning"])] for row in data.importance]
    drawn = len(data.results["importance"]["beeswarm"])
    jobs = f"mean over {int(data.results['importance']['jobs']):,} jobs"
    head = ["feature", "mean factor", "meaning"]
    return (
        ReportTable(f"The {drawn} most important features, {jobs}", head, rows[:drawn], text_columns=(2,)),
        ReportTable(f"All other features, {jobs}", head, rows[drawn:], text_columns=(2,)),
    )


def job_table(case: Mapping[str, Any]) -> ReportTable:
    """The effect of every feature on one prediction."""
    rows = [
        [
            str(part["name"]),
            factor(float(part["contribution"])),
            str(part["value_text"]),
            str(part["median_text"]),
            format_duration(float(part["predicted_with_median_s"])),
            str(part["meaning"]),
        ]
        for part in case["contributions"]
    ]
    rows.append(["all other features", factor(float(case["other_contributions"])), "", "", "", ""])
    return ReportTable(
        f"Job {int(case['job_id'])}",
        ["feature", "factor", "value", "typical value", "mean prediction with typical value", "meaning"],
        rows,
        text_columns=(2, 3, 5),
        faint=[len(rows) - 1],
    )


def total_factor(case: Mapping[str, Any]) -> str:
    """The factor from the anchor of a prediction to the mean of the forest."""
    parts = sum(float(part["contribution"]) for part in case["contributions"])
    return factor(float(case["base"]) + parts + float(case["other_contributions"]))
