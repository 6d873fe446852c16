"""HTML tables, sentences and section order of the report on run-time predictions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from html import escape
from typing import Any

from kilowait.report.figures import ReportFigure
from kilowait.report.format import capital, number, share
from kilowait.report.html import best_of, marked_cell, table, text
from kilowait.report.predictions import figures
from kilowait.report.predictions.data import CLASSES, PredictionReportData, factor, job_sentences, what_if_sentences
from kilowait.units import format_duration

__all__ = ["prediction_sections", "scores_table"]

Add = Callable[[str, ReportFigure], str]


def prediction_sections(data: PredictionReportData, add: Add, level: int) -> Iterator[str]:
    """All sections on one log; `add` registers a figure by name and returns its HTML, `level` is the heading level."""

    def heading(heading_text: str, sublevel: int = 0) -> str:
        return f"<h{level + sublevel}>{text(heading_text)}</h{level + sublevel}>"

    yield f'<div class="lead">{"".join(f"<p>{text(sentence)}</p>" for sentence in data.sentences())}</div>'
    yield heading("Prediction accuracy")
    yield scores_table(data)
    yield add("plane", figures.true_against_predicted(data))
    yield heading("Calibration of upper bounds")
    yield add("calibration", figures.calibration(data))
    yield heading("Drift over time")
    yield add("drift", figures.drift(data))
    yield heading("Accuracy by job class")
    yield class_tables(data)
    yield heading("Feature attribution")
    yield add("swarm", figures.beeswarm(data))
    yield importance_table(data)
    yield heading("Explained predictions")
    yield _method_note(data)
    for case_number, case in enumerate(data.results["explained"], 1):
        yield heading(capital(str(case["role"])), 1)
        yield job_block(case, add(f"job-{case_number}", figures.job_explanation(case)), expanded=case_number == 1)


def scores_table(data: PredictionReportData) -> str:
    """Scores of the predictions and of baselines on the same jobs."""
    rows = data.scores
    all_rows = list(range(len(rows)))
    cells: list[list[str]] = []
    for name, better, cell in (
        ("accuracy", "more", share),
        ("log_rmse", "less", number),
        ("mae_s", "less", format_duration),
    ):
        values = [float(row[name]) for row in rows]
        best = best_of(values, all_rows, better)
        cells.append([marked_cell(cell(value), index in best) for index, value in enumerate(values)])
    cells.append([text(share(float(row["underprediction_rate"]))) for row in rows])
    cells.append([f"{int(row['jobs']):,}" for row in rows])
    lines = [
        [text(capital(str(row["description"]))), *(column[index] for column in cells)] for index, row in enumerate(rows)
    ]
    note = (
        "Bold with a dot: best of the column. Accuracy: the shorter of prediction and truth over the longer, mean "
        "over jobs; 100 % is perfect. Log-RMSE: root of the mean squared difference of ln(1 + seconds); 0.69 is a "
        "factor of two. Too short: share of jobs that ran longer than predicted; rare for requests, which are limits."
    )
    html_table = table(
        f"Prediction scores on the last {int(data.results['test_jobs']):,} jobs of {text(data.trace)}",
        ["predictor", "accuracy", "log-RMSE", "mean absolute error", "too short", "jobs"],
        lines,
        marked=[index for index, row in enumerate(rows) if row["name"] == "forest"],
    )
    return f'{html_table}<p class="note">{text(note)}</p>'


def class_tables(data: PredictionReportData) -> str:
    """Accuracy by job class."""
    tables = []
    for kind, (title, head) in CLASSES.items():
        rows = [
            [
                escape(str(row["label"])),
                f"{int(row['jobs']):,}",
                text(share(float(row["accuracy"]))),
                "–" if row["request"] is None else text(share(float(row["request"]))),
                text(share(float(row["underprediction_rate"]))),
            ]
            for row in data.results["classes"][kind]
        ]
        tables.append(table(title, [head, "jobs", "accuracy", "accuracy of the request", "too short"], rows))
    return "".join(tables)


def importance_table(data: PredictionReportData) -> str:
    """All features of the predictor with their importance and meaning."""
    rows = [
        [escape(str(row["name"])), text(factor(float(row["mean"]))), text(str(row["meaning"]))]
        for row in data.importance
    ]
    drawn = len(data.results["importance"]["beeswarm"])
    jobs = f"mean over {int(data.results['importance']['jobs']):,} jobs"
    head = ["feature", "mean factor", "meaning"]
    first = table(f"The {drawn} most important features, {jobs}", head, rows[:drawn], text_columns=(2,))
    rest = table(f"All other features, {jobs}", head, rows[drawn:], text_columns=(2,))
    note = (
        "× 1.20: on average the feature makes a prediction 1.2 times longer or shorter. For features given as a "
        "difference of logarithms (ln) from the anchor, 0 means equal and 0.69 twice as long."
    )
    return (
        f'{first}<p class="note">{text(note)}</p>'
        f"<details><summary>The other {len(rows) - drawn} features</summary>{rest}</details>"
    )


def job_block(case: Mapping[str, Any], drawn: str, *, expanded: bool) -> str:
    """One explained prediction: sentences, figure, counterfactuals, and a table of all features."""
    paragraphs = "".join(f"<p>{text(sentence)}</p>" for sentence in job_sentences(case))
    counterfactuals = "".join(f"<li>{text(sentence)}</li>" for sentence in what_if_sentences(case))
    rows = [
        [
            escape(str(part["name"])),
            text(factor(float(part["contribution"]))),
            text(str(part["value_text"])),
            text(str(part["median_text"])),
            text(format_duration(float(part["predicted_with_median_s"]))),
            text(str(part["meaning"])),
        ]
        for part in case["contributions"]
    ]
    rows.append(["all other features", text(factor(float(case["other_contributions"]))), "", "", "", ""])
    html_table = table(
        f"Job {int(case['job_id'])}",
        ["feature", "factor", "value", "typical value", "mean prediction with typical value", "meaning"],
        rows,
        text_columns=(2, 3, 5),
        faint=[len(rows) - 1],
    )
    total = (
        float(case["base"])
        + sum(float(part["contribution"]) for part in case["contributions"])
        + float(case["other_contributions"])
    )
    note = (
        f"Factors multiply: the anchor, {format_duration(float(case['anchor_s']))}, times "
        f"{factor(float(case['base']))} (the "
        f"mean over all jobs), times the factors above. The total factor is {factor(total)} and gives the mean of the "
        "forest, before it is limited to the request. The point prediction is the value of highest expected accuracy."
    )
    state = " open" if expanded else ""
    return (
        f"{paragraphs}{drawn}<p>What would change this prediction?</p><ul>{counterfactuals}</ul>"
        f"<details{state}><summary>All features</summary>{html_table}"
        f'<p class="note">{text(note)}</p></details>'
    )


def _method_note(data: PredictionReportData) -> str:
    note = (
        "A prediction starts at the anchor, the median of the last five run times of similar jobs (same user, request "
        "and size where available), and every feature multiplies it by a factor. The explained forest is the one that "
        "predicted the job; it was trained without this job’s run time. Typical value: the median over the jobs "
        "that the "
        f"forest was trained on, at most {int(data.results['model']['refits']['jobs']):,}."
    )
    return f'<p class="note">{text(note)}</p>'
