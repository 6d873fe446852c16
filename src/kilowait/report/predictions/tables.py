"""Tables and sentences on predicted run times, as HTML; and all of it in order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from html import escape
from typing import Any

from kilowait.report.figures import ReportFigure
from kilowait.report.format import capital, number, share
from kilowait.report.html import (
    best_of,
    marked_cell,
    table,
    text,
)
from kilowait.report.predictions import figures
from kilowait.report.predictions.data import (
    CLASSES,
    PredictionReportData,
    factor,
    job_sentences,
    what_if_sentences,
)
from kilowait.units import format_span

__all__ = ["foresight_parts", "importance_table", "job_block", "scores_table"]

Add = Callable[[str, ReportFigure], str]


def foresight_parts(found: PredictionReportData, add: Add, level: int) -> Iterator[str]:
    """Everything on one log; `add` takes a figure by name and gives its HTML, `level` is that of headings."""

    def heading(words: str, below: int = 0) -> str:
        return f"<h{level + below}>{text(words)}</h{level + below}>"

    yield f'<div class="lead">{"".join(f"<p>{text(said)}</p>" for said in found.sentences())}</div>'
    yield heading("How near predictions are")
    yield scores_table(found)
    yield add("plane", figures.plane(found))
    yield heading("Do bounds hold?")
    yield add("calibration", figures.calibration(found))
    yield heading("Does it get better or worse with time?")
    yield add("drift", figures.drift(found))
    yield heading("Whose jobs are hard to predict")
    yield class_tables(found)
    yield heading("What predictions are made from")
    yield add("swarm", figures.swarm(found))
    yield importance_table(found)
    yield heading("Single jobs explained")
    yield _how_to_read(found)
    for place, case in enumerate(found.told["explained"]):
        yield heading(capital(str(case["which"])), 1)
        yield job_block(case, add(f"job-{place + 1}", figures.job(case)), opened=place == 0)


def scores_table(found: PredictionReportData) -> str:
    """Predictions beside simpler guesses, on the same jobs."""
    rows = found.scores
    every = list(range(len(rows)))
    cells: list[list[str]] = []
    for name, better, cell in (
        ("accuracy", "more", share),
        ("log_rmse", "less", number),
        ("mae_s", "less", format_span),
    ):
        values = [float(row[name]) for row in rows]
        best = best_of(values, every, better)
        cells.append([marked_cell(cell(value), who in best) for who, value in enumerate(values)])
    cells.append([text(share(float(row["underprediction_rate"]))) for row in rows])
    cells.append([f"{int(row['jobs']):,}" for row in rows])
    lines = [
        [text(capital(str(row["words"]))), *(column[who] for column in cells)] for who, row in enumerate(rows)
    ]
    note = (
        "Bold with a dot: the best of its column. Accuracy: the shorter of prediction and truth over the longer, mean "
        "over jobs; 100 % is perfect. Log-RMSE: root of the mean squared difference of ln(1 + seconds), 0.69 is a "
        "factor of two. Too short: jobs that took longer than this said; a request is a limit, so it rarely is."
    )
    made = table(
        f"On the last {int(found.told['judged']):,} jobs of {text(found.trace)}",
        ["prediction", "accuracy", "log-RMSE", "mean error", "too short", "jobs"],
        lines,
        marked=[who for who, row in enumerate(rows) if row["name"] == "forest"],
    )
    return f'{made}<p class="note">{text(note)}</p>'


def class_tables(found: PredictionReportData) -> str:
    """Accuracy by class of job."""
    made = []
    for kind, (title, head) in CLASSES.items():
        rows = [
            [
                escape(str(row["label"])),
                f"{int(row['jobs']):,}",
                text(share(float(row["accuracy"]))),
                "–" if row["request"] is None else text(share(float(row["request"]))),
                text(share(float(row["underprediction_rate"]))),
            ]
            for row in found.told["classes"][kind]
        ]
        made.append(table(title, [head, "jobs", "accuracy", "of the request", "too short"], rows))
    return "".join(made)


def importance_table(found: PredictionReportData) -> str:
    """Every number that predictions are made from, with what it is."""
    rows = [
        [escape(str(row["name"])), text(factor(float(row["mean"]))), text(str(row["meaning"]))]
        for row in found.importance
    ]
    drawn = len(found.told["importance"]["swarm"])
    jobs = f"mean over {int(found.told['importance']['jobs']):,} jobs"
    head = ["number", "moves a prediction by", "what it is"]
    first = table(f"The {drawn} numbers that count most, {jobs}", head, rows[:drawn], words=(2,))
    rest = table(f"All other numbers, {jobs}", head, rows[drawn:], words=(2,))
    note = (
        "× 1.20: on average it makes a prediction 1.2 times longer, or shorter. Where a number is given as a "
        "difference of logarithms (ln) from the anchor, 0 is as always and 0.69 twice as long."
    )
    return (
        f'{first}<p class="note">{text(note)}</p>'
        f"<details><summary>The other {len(rows) - drawn} numbers</summary>{rest}</details>"
    )


def job_block(case: Mapping[str, Any], drawn: str, *, opened: bool) -> str:
    """One job: in words, drawn, what would have changed it, and number by number."""
    said = "".join(f"<p>{text(sentence)}</p>" for sentence in job_sentences(case))
    changed = "".join(f"<li>{text(sentence)}</li>" for sentence in what_if_sentences(case))
    rows = [
        [
            escape(str(part["name"])),
            text(factor(float(part["moved"]))),
            text(str(part["words"])),
            text(str(part["usual"])),
            text(format_span(float(part["if_usual_s"]))),
            text(str(part["meaning"])),
        ]
        for part in case["parts"]
    ]
    rows.append(["all other numbers", text(factor(float(case["rest"]))), "", "", "", ""])
    made = table(
        f"Job {int(case['job_id'])}",
        ["number", "made it", "value", "usual", "mean if it were usual", "what it is"],
        rows,
        words=(2, 3, 5),
        faint=[len(rows) - 1],
    )
    total = float(case["start"]) + sum(float(part["moved"]) for part in case["parts"]) + float(case["rest"])
    note = (
        f"Factors multiply: the anchor, {format_span(float(case['anchor_s']))}, {factor(float(case['start']))} as for "
        f"all jobs on average, then those above, make {factor(total)} of it in all: the mean that the trees give, "
        "before it is held to the request. The likeliest time is another number: where most of the jobs like it lie."
    )
    state = " open" if opened else ""
    return (
        f"{said}{drawn}<p>What would have changed this prediction?</p><ul>{changed}</ul>"
        f"<details{state}><summary>Number by number</summary>{made}"
        f'<p class="note">{text(note)}</p></details>'
    )


def _how_to_read(found: PredictionReportData) -> str:
    said = (
        "A prediction starts at the anchor, the middle of the last five run times of jobs like it (same user, request "
        "and size where there are such), and every number known of the job makes it longer or shorter by a factor. The "
        "forest that is asked is the one that predicted the job; it had not seen how long it took. Usual: the middle "
        f"of the jobs that forest learned from, at most {int(found.told['model']['online']['jobs']):,}."
    )
    return f'<p class="note">{text(said)}</p>'
