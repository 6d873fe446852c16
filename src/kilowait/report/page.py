"""One self-contained page: findings in words, tables, figures, charts, and where it all comes from."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from html import escape
from importlib.resources import files
from os import PathLike
from pathlib import Path

from kilowait.errors import InputError
from kilowait.evaluation.comparison import Comparison
from kilowait.report import (
    figures,
    html,
    interactive,
    job_figures,
)
from kilowait.report.comparison_data import ComparisonData, pairs_against
from kilowait.report.comparison_table import comparison_table
from kilowait.report.energy import figures as energy_pictures
from kilowait.report.energy import interactive as energy_charts
from kilowait.report.energy import tables as energy_sections
from kilowait.report.energy.data import EnergyData
from kilowait.report.figures import ReportFigure
from kilowait.report.gantt import outages
from kilowait.report.gpu import figures as gpu_pictures
from kilowait.report.gpu import interactive as gpu_charts
from kilowait.report.gpu import tables as gpu_sections
from kilowait.report.gpu.data import GpuData, lacking
from kilowait.report.load import LoadedRuns, RunSource, opened
from kilowait.report.page_file import MARK, check_page, write_page
from kilowait.report.predictions.data import PredictionReportData
from kilowait.report.predictions.tables import foresight_parts
from kilowait.report.synthetic.data import SyntheticScoreData
from kilowait.report.synthetic.tables import likened_parts
from kilowait.report.training import figures as learning_pictures
from kilowait.report.training import pareto as learning_fronts
from kilowait.report.training import tables as learning_sections
from kilowait.report.training.data import AgentEvaluation, TrainingData

__all__ = ["RunSource", "TrainingData", "check_page", "page", "write_report"]

_SCRIPTS = ("packed.js", "axis.js", "view.js", "series.js", "gantt.js", "page.js")
_OUTAGES, _POWER, _ENERGY_STYLE = "outages.js", "power.js", "energy.css"
"""For the pages that need them only."""
Progress = Callable[[str], None]
Figures = dict[str, Callable[[], ReportFigure]]
"""By name of their files; those that only files have are drawn when they are asked for."""


def write_report(
    folders: Sequence[str | PathLike[str]],
    out: str | PathLike[str],
    *,
    figures: str | PathLike[str] | None = None,
    title: str | None = None,
    progress: Progress | None = None,
    seed: int = 0,
) -> Path:
    """Write the page on some run folders; with `figures` every figure as SVG and PNG too.

    Runs are compared with one another and must be of the same jobs on the same machine. Comparisons, trained agents,
    predicted run times and scores of synthetic workloads may be added. An earlier report at `out` is replaced, another
    file is not.

    Args:
        folders: what `kilowait simulate`, `compare`, `train`, `predict report` or `synth score` wrote.
        out: the HTML file; folders above it are made.
        figures: a folder for the figures.
        title: of the page.
        progress: told in words what is being done.
        seed: of the bootstrap behind the intervals.

    Returns:
        The path of the page.
    """
    target = Path(out)
    check_page(target)
    say = progress if progress is not None else _silent
    given = opened(folders, say)
    found = [ComparisonData(contest, seed, bounds) for contest, bounds in given.contests]
    drawn: Figures = {}
    text = _page(found, given, title, say, drawn)
    if figures is not None:
        say("writing the figures")
        _save_figures(drawn, Path(figures))
    say(f"writing {target}")
    write_page(target, text)
    return target


def page(
    contests: Sequence[Comparison],
    *,
    training: Sequence[TrainingData] = (),
    sources: Sequence[RunSource] = (),
    title: str | None = None,
    seed: int = 0,
) -> str:
    """The page as HTML."""
    given = LoadedRuns(training=list(training), sources=list(sources))
    return _page([ComparisonData(contest, seed) for contest in contests], given, title, _silent, {})


# -- the page ----------------------------------------------------------------------------------------


def _page(
    found: Sequence[ComparisonData],
    given: LoadedRuns,
    title: str | None,
    say: Progress,
    drawn: Figures,
) -> str:
    if not (found or given.training or given.foretold or given.likened):
        raise InputError(
            "a report of nothing; give at least one run, comparison, agent, folder of predictions or score"
        )
    figures.need_matplotlib()
    name = title if title is not None else _title(found, given)
    parts: list[tuple[str, str, str]] = []  # id, heading, content
    short = {}  # headings that are too long for a link
    if found:
        parts.append(("summary", "Summary", _summary(found)))
    for number, each in enumerate(found):
        say(f"drawing {each.trace}")
        heading = each.trace if len(found) > 1 else f"Results on {each.trace}"
        short[heading] = each.trace if len(found) > 1 else "Results"
        prefix = f"{number + 1}-{_slug(each.trace)}-" if len(found) > 1 else ""
        parts.append((f"trace-{number}", heading, "".join(_contest(each, number, prefix, drawn))))
    if given.training:
        parts.append(("training", "Training", "".join(_training(given.training, drawn))))
    if given.foretold:
        say("drawing predictions")
        parts.append(("foresight", "Predicted run times", "".join(_foresight(given.foretold, drawn))))
    for number, likened in enumerate(given.likened):
        say(f"drawing {likened.name}")
        parts += _likened(likened, number, len(given.likened) > 1, drawn)
    ledgers = [each for each in found if each.contest.ledger is not None]
    if ledgers:
        read = "".join(
            (f"<h3>{escape(each.trace)}</h3>" if len(ledgers) > 1 else "")
            + html.ledger(each.contest.ledger or {}, each.trace)
            for each in ledgers
        )
        parts.append(("ledger", "What was read", read))
    if given.sources:
        told = "".join(html.provenance(s.folder, s.kind, s.manifest, s.scenario) for s in given.sources)
        parts.append(("provenance", "Provenance", told))
    links = "".join(
        f'<li><a href="#{anchor}">{escape(short.get(words, words))}</a></li>' for anchor, words, _ in parts
    )
    main = "".join(
        f'<section aria-labelledby="{anchor}"><h2 id="{anchor}">{escape(words)}</h2>{content}</section>'
        for anchor, words, content in parts
    )
    style, script = _style(found), "\n".join(_asset(name) for name in _scripts(found))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src data:"
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'{MARK}\n<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(name)}</title>\n<style>{style}</style>\n</head>\n<body>\n"
        '<a class="skip" href="#main">Skip to the report</a>\n'
        f'<header><p class="brand">kilowait report</p><h1>{escape(name)}</h1>'
        '<button type="button" id="scheme" hidden>Dark</button></header>\n'
        f'<nav aria-label="Contents"><ul>{links}</ul></nav>\n<main id="main">\n{main}\n</main>\n'
        "<footer><p>Written by kilowait. This page needs no network: all it shows is in this file.</p></footer>\n"
        f'<script type="module">{script}</script>\n</body>\n</html>\n'
    )


def _style(found: Sequence[ComparisonData]) -> str:
    drawn = any(each.contest.energy is not None for each in found)
    return _asset("page.css") + (_asset(_ENERGY_STYLE) if drawn else "")


def _scripts(found: Sequence[ComparisonData]) -> list[str]:
    """In the order in which they run: what changes a chart before the charts are started."""
    scripts = list(_SCRIPTS)
    if any(outages(each.log(each.shown[0])) for each in found):
        scripts.insert(scripts.index("page.js"), _OUTAGES)
    if any(each.contest.energy is not None for each in found):
        scripts.append(_POWER)
    return scripts


def _title(found: Sequence[ComparisonData], given: LoadedRuns) -> str:
    if not found and given.training:
        return f"Training of {given.training[0].name}"
    if not found and given.foretold:
        return f"Predicted run times of {', '.join(dict.fromkeys(each.trace for each in given.foretold))}"
    if not found:
        return "; ".join(f"{each.made} against {each.real}" for each in given.likened)
    traces = ", ".join(dict.fromkeys(each.trace for each in found))
    labels = found[0].contest.labels
    if len(found) == 1 and len(labels) == 1:
        return f"{labels[0]} on {traces}"
    return f"Schedulers compared on {traces}"


def _summary(found: Sequence[ComparisonData]) -> str:
    if len(found) == 1:
        return html.summary_block(found[0])
    return "".join(f"<h3>{escape(each.trace)}</h3>{html.summary_block(each)}" for each in found)


def _contest(found: ComparisonData, number: int, prefix: str, drawn: Figures) -> Iterator[str]:
    def add(name: str, figure: ReportFigure) -> str:
        drawn[f"{prefix}{name}"] = partial(_same, figure)
        return html.figure(figure, f"f{number}-{name}")

    yield "<h3>Side by side</h3>"
    yield comparison_table(found)
    if found.judged is not None and len(found.real) > 1:
        reference = found.contest.labels[found.reference]
        yield '<div class="pair">'
        yield add("means", figures.means(found, found.judged))
        yield add("ratios", figures.ratios(found, pairs_against(found, reference), reference))
        yield "</div>"
    held = GpuData.of(found)
    if held is not None:
        yield "<h3>GPUs</h3>"
        yield gpu_sections.gpu_words(held)
        yield gpu_sections.gpu_table(held)
        yield gpu_sections.preemption_table(held)
        yield gpu_sections.type_table(held)
        yield gpu_sections.priority_table(held)
    elif (why := lacking(found)) is not None:
        yield f"<h3>GPUs</h3><p>{escape(why)}</p>"
    drew = EnergyData.of(found)
    if drew is not None:
        yield from _energy(drew, add)
    yield f"<h3>How waits and {'completion times' if found.lead.timed else 'slowdowns'} are spread</h3>"
    yield html.drawn_note(found)
    yield add("shares", job_figures.shares(found))
    yield add("violins", job_figures.violins(found))
    yield "<h3>Over time</h3>"
    yield interactive.time_chart(found, f"time-{number}")
    drawn[f"{prefix}over-time"] = partial(job_figures.over_time, found)
    if held is not None:
        yield "<h3>GPUs over time</h3>"
        yield gpu_charts.gpu_chart(held, f"gpus-{number}")
        drawn[f"{prefix}gpus-over-time"] = partial(gpu_pictures.gpus_over_time, held)
    if drew is not None:
        yield "<h3>Power over time</h3>"
        yield energy_charts.power_chart(drew, f"power-{number}", f"time-{number}")
        if drew.record.curves:
            drawn[f"{prefix}power"] = partial(energy_pictures.power, drew)
    yield "<h3>Who waits</h3>"
    size = "gpus" if found.placed else "size"
    by = {kind: found.by_class(kind, most=html.USERS) for kind in (size, "runtime", "user")}
    yield add("classes", job_figures.classes(found, by[size], by["runtime"]))
    yield html.class_tables(found, by)
    yield "<h3>Job by job</h3>"
    given = {who: interactive.rows_of(found, who) for who in interactive.gantt_runs(found)}
    yield interactive.gantt_chart(found, f"gantt-{number}", given)
    sizes = interactive.size_classes(found)
    for who, rows in given.items():
        name = f"{prefix}gantt-{_slug(found.contest.labels[who])}"
        name = f"{name}-{who}" if name in drawn else name
        drawn[name] = partial(job_figures.gantt, found, who, rows, sizes)


def _energy(drew: EnergyData, add: Callable[[str, ReportFigure], str]) -> Iterator[str]:
    yield "<h3>Energy, CO2 and cost</h3>"
    yield energy_sections.energy_table(drew)
    yield energy_sections.assumptions(drew)
    if len(drew.contenders) > 1:
        yield add("pareto", energy_pictures.pareto(drew))
    yield add("energy-by-state", energy_pictures.spent(drew))
    for group in drew.levers:
        yield energy_sections.lever_table(drew, group)


def _training(training: Sequence[TrainingData], drawn: Figures) -> Iterator[str]:
    for number, each in enumerate(training):
        prefix = f"{number + 1}-{_slug(each.name)}-" if len(training) > 1 else ""
        add = partial(_added, drawn, prefix, f"t{number}")
        if len(training) > 1:
            yield f"<h3>{escape(each.name)}</h3>"
        yield from _agent(each, add, 4 if len(training) > 1 else 3)


def _agent(each: TrainingData, add: Callable[[str, ReportFigure], str], level: int) -> Iterator[str]:
    def heading(words: str) -> str:
        return f"<h{level}>{words}</h{level}>"

    if "front" in each.judged:
        yield heading("On later jobs")
        yield learning_sections.energy_judged_table(each.judged)
    elif "policies" in each.judged:
        yield heading("On later jobs")
        yield learning_sections.gpu_judged_table(each.judged)
    elif each.judged:
        found = AgentEvaluation(each.judged)
        yield heading("On later jobs")
        yield learning_sections.verdict_block(found)
        yield learning_sections.judged_table(found)
        yield add("judged", learning_pictures.judged(found))
    if each.front:
        yield heading("Under every preference")
        if len(each.front["terms"]) == 2:
            yield add("front", learning_fronts.front(each.front))
        yield learning_fronts.front_table(each.front)
    if each.history:
        yield heading("How the training went")
        draw = learning_pictures.curves if each.updates else figures.learning
        yield add("training", draw(each.history, each.objective))
    if each.settings:
        yield learning_sections.settings_table(each.settings)
    if each.weights or each.explained or each.plain:
        yield heading("What it looks at")
    if each.plain:
        yield learning_sections.plain_note(each.plain)
    if each.weights:
        yield html.weights_table(each.weights)
    if each.explained:
        yield add("looked-at", learning_pictures.looked_at(each.explained))
        yield learning_sections.usual_table(each.explained)
        yield heading("Choices explained")
        yield learning_sections.choices_note(each.explained)
        for place, case in enumerate(each.explained["cases"]):
            yield learning_sections.case_block(case, each.explained["score"], level + 1, opened=place == 0)
            if case.get("attention"):
                yield add(f"attention-{place + 1}", learning_pictures.attention(case["attention"]))


def _foresight(foretold: Sequence[PredictionReportData], drawn: Figures) -> Iterator[str]:
    several = len(foretold) > 1
    for number, each in enumerate(foretold):
        prefix = f"{number + 1}-{_slug(each.name)}-" if several else ""
        if several:
            yield f"<h3>{escape(each.name)}</h3>"
        add = partial(_added, drawn, f"{prefix}foresight-", f"p{number}")
        yield from foresight_parts(each, add, 4 if several else 3)


def _likened(
    found: SyntheticScoreData, number: int, several: bool, drawn: Figures
) -> list[tuple[str, str, str]]:
    """Sections of the page; where there are several scores, one section for each."""
    prefix = f"{number + 1}-{_slug(found.name)}-" if several else ""
    add = partial(_added, drawn, f"{prefix}synthetic-", f"s{number}")
    made = list(likened_parts(found, add, 4 if several else 3))
    if not several:
        return [(f"synthetic-{anchor}", heading, content) for anchor, heading, content in made]
    whole = "".join(f"<h3>{escape(heading)}</h3>{content}" for _, heading, content in made)
    return [(f"synthetic-{number}", found.name, whole)]


def _added(drawn: Figures, prefix: str, ids: str, name: str, figure: ReportFigure) -> str:
    """The figure in the page, and by name for files."""
    drawn[f"{prefix}{name}"] = partial(_same, figure)
    return html.figure(figure, f"{ids}-{name}")


def _asset(name: str) -> str:
    return files("kilowait.report").joinpath("assets", name).read_text(encoding="utf-8")


# -- folders and files ---------------------------------------------------------------------------------


def _save_figures(drawn: Figures, folder: Path) -> None:
    try:
        for name, draw in drawn.items():
            figures.save(draw().figure, folder, name)
    except OSError as problem:
        raise InputError(f"cannot write figures to {folder}: {problem.strerror or problem}") from None


def _slug(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "-", text).strip("-").lower() or "x"


def _same(figure: ReportFigure) -> ReportFigure:
    return figure


def _silent(_: str) -> None:
    pass
