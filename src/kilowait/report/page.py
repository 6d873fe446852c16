"""The HTML report: summary, tables, figures, interactive charts and provenance in one self-contained page."""

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
from kilowait.files import locks_output
from kilowait.report import figures, html, interactive, job_figures
from kilowait.report.comparison_data import ComparisonData, pairs_against
from kilowait.report.comparison_table import comparison_table
from kilowait.report.energy import figures as energy_figures
from kilowait.report.energy import interactive as energy_charts
from kilowait.report.energy import tables as energy_tables
from kilowait.report.energy.data import EnergyData
from kilowait.report.figures import ReportFigure
from kilowait.report.gantt import outages
from kilowait.report.gpu import figures as gpu_figures
from kilowait.report.gpu import interactive as gpu_charts
from kilowait.report.gpu import tables as gpu_tables
from kilowait.report.gpu.data import GpuData, missing_gpu_data
from kilowait.report.page_file import REPORT_TAG, check_page, write_page
from kilowait.report.predictions.data import PredictionReportData
from kilowait.report.predictions.sections import prediction_sections
from kilowait.report.result_folders import LoadedRuns, RunSource, load_runs
from kilowait.report.synthetic.data import SyntheticScoreData
from kilowait.report.synthetic.sections import synthetic_sections
from kilowait.report.training import figures as training_figures
from kilowait.report.training import pareto as training_pareto
from kilowait.report.training import tables as training_tables
from kilowait.report.training.data import AgentEvaluation, TrainingData

__all__ = ["RunSource", "TrainingData", "check_page", "page", "write_report"]

_SCRIPTS = ("packed.js", "axis.js", "view.js", "series.js", "gantt.js", "page.js")
_OUTAGES, _POWER, _ENERGY_STYLE = "outages.js", "power.js", "energy.css"
"""Assets that are included only in pages that need them."""
Progress = Callable[[str], None]
Figures = dict[str, Callable[[], ReportFigure]]
"""Functions that return a figure, by file name. Figures that are not part of the page are drawn only when saved."""


@locks_output("out")
@locks_output("figures", inside=True)
def write_report(
    source: str | PathLike[str] | Comparison | Sequence[str | PathLike[str] | Comparison],
    out: str | PathLike[str],
    *,
    figures: str | PathLike[str] | None = None,
    title: str | None = None,
    progress: Progress | None = None,
    seed: int = 0,
) -> Path:
    """Write the report of run folders and comparisons; with `figures`, also write every figure as SVG and PNG.

    Single runs are compared with one another and must have the same jobs and the same cluster. Comparisons, trained
    agents, run-time predictions and scores of synthetic workloads may be added. An earlier report at `out` is
    overwritten; any other file is not.

    Args:
        source: what `kilowait.compare` returned, or a folder that `kilowait simulate`, `compare`, `train`, `predict
            report` or `synth score` wrote, or several of these.
        out: the HTML file; missing parent folders are created.
        figures: the folder to write the figures to.
        title: the title of the page.
        progress: called with a message at every step.
        seed: the seed of the bootstrap confidence intervals.

    Returns:
        The path of the page.

    >>> import tempfile, kilowait as kw
    >>> jobs, cluster = kw.lublin(200, nodes=16, load=0.9, seed=1), kw.Cluster.from_nodes(16)
    >>> result = kw.compare(jobs, cluster, ["fcfs", "saf"], windows=2, window_jobs=50)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_report(result, f"{folder}/page.html").name
    'page.html'
    """
    target = Path(out)
    check_page(target)
    report_progress = progress if progress is not None else _silent
    given = [source] if isinstance(source, str | PathLike | Comparison) else list(source)
    folders = [item for item in given if not isinstance(item, Comparison)]
    loaded = load_runs(folders, report_progress) if folders else LoadedRuns()
    comparisons = [ComparisonData(item, seed) for item in given if isinstance(item, Comparison)]
    comparisons += [ComparisonData(comparison, seed, bounds) for comparison, bounds in loaded.comparisons]
    figures_by_name: Figures = {}
    text = _page(comparisons, loaded, title, report_progress, figures_by_name)
    if figures is not None:
        report_progress("writing the figures")
        _save_figures(figures_by_name, Path(figures))
    report_progress(f"writing {target}")
    write_page(target, text)
    return target


def page(
    comparisons: Sequence[Comparison],
    *,
    training: Sequence[TrainingData] = (),
    sources: Sequence[RunSource] = (),
    title: str | None = None,
    seed: int = 0,
) -> str:
    """Return the report as HTML."""
    loaded = LoadedRuns(training=list(training), sources=list(sources))
    return _page([ComparisonData(comparison, seed) for comparison in comparisons], loaded, title, _silent, {})


# -- the page ----------------------------------------------------------------------------------------


def _page(
    comparisons: Sequence[ComparisonData],
    loaded: LoadedRuns,
    title: str | None,
    report_progress: Progress,
    figures_by_name: Figures,
) -> str:
    if not (comparisons or loaded.training or loaded.predictions or loaded.synthetic_scores):
        raise InputError(
            "there is nothing to report on; give at least one run, comparison, agent, prediction report or "
            "synthetic-workload score"
        )
    figures.need_matplotlib()
    name = title if title is not None else _title(comparisons, loaded)
    parts: list[tuple[str, str, str]] = []  # id, heading, content
    short = {}  # headings that are too long for a link
    if comparisons:
        parts.append(("summary", "Summary", _summary(comparisons)))
    for number, each in enumerate(comparisons):
        report_progress(f"drawing the figures of {each.trace}")
        heading = each.trace if len(comparisons) > 1 else f"Results on {each.trace}"
        short[heading] = each.trace if len(comparisons) > 1 else "Results"
        prefix = f"{number + 1}-{_slug(each.trace)}-" if len(comparisons) > 1 else ""
        parts.append((f"trace-{number}", heading, "".join(_comparison_section(each, number, prefix, figures_by_name))))
    if loaded.training:
        parts.append(("training", "Training", "".join(_training_section(loaded.training, figures_by_name))))
    if loaded.predictions:
        report_progress("drawing the figures of the predictions")
        parts.append(
            ("predictions", "Predicted run times", "".join(_prediction_sections(loaded.predictions, figures_by_name)))
        )
    for number, score in enumerate(loaded.synthetic_scores):
        report_progress(f"drawing the figures of {score.name}")
        parts += _synthetic_sections(score, number, len(loaded.synthetic_scores) > 1, figures_by_name)
    ledgers = [each for each in comparisons if each.comparison.cleaning_report is not None]
    if ledgers:
        tables = "".join(
            (f"<h3>{escape(each.trace)}</h3>" if len(ledgers) > 1 else "")
            + html.cleaning_table(each.comparison.cleaning_report or {}, each.trace)
            for each in ledgers
        )
        parts.append(("cleaning", "Cleaning report", tables))
    if loaded.sources:
        provenance = "".join(html.provenance(s.folder, s.kind, s.manifest, s.scenario) for s in loaded.sources)
        parts.append(("provenance", "Provenance", provenance))
    links = "".join(
        f'<li><a href="#{anchor}">{escape(short.get(heading_text, heading_text))}</a></li>'
        for anchor, heading_text, _ in parts
    )
    main = "".join(
        f'<section aria-labelledby="{anchor}"><h2 id="{anchor}">{escape(heading_text)}</h2>{content}</section>'
        for anchor, heading_text, content in parts
    )
    style, script = _style(comparisons), "\n".join(_asset(name) for name in _scripts(comparisons))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src data:"
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'{REPORT_TAG}\n<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(name)}</title>\n<style>{style}</style>\n</head>\n<body>\n"
        '<a class="skip" href="#main">Skip to the report</a>\n'
        f'<header><p class="brand">kilowait report</p><h1>{escape(name)}</h1>'
        '<button type="button" id="scheme" hidden>Dark</button></header>\n'
        f'<nav aria-label="Contents"><ul>{links}</ul></nav>\n<main id="main">\n{main}\n</main>\n'
        "<footer><p>Written by kilowait. This page is self-contained and needs no network.</p></footer>\n"
        f'<script type="module">{script}</script>\n</body>\n</html>\n'
    )


def _style(comparisons: Sequence[ComparisonData]) -> str:
    has_energy = any(each.comparison.energy is not None for each in comparisons)
    return _asset("page.css") + (_asset(_ENERGY_STYLE) if has_energy else "")


def _scripts(comparisons: Sequence[ComparisonData]) -> list[str]:
    """The names of the scripts, in execution order; scripts that extend a chart class come before those that use it."""
    scripts = list(_SCRIPTS)
    if any(outages(each.log(each.shown[0])) for each in comparisons):
        scripts.insert(scripts.index("page.js"), _OUTAGES)
    if any(each.comparison.energy is not None for each in comparisons):
        scripts.append(_POWER)
    return scripts


def _title(comparisons: Sequence[ComparisonData], loaded: LoadedRuns) -> str:
    if not comparisons and loaded.training:
        return f"Training of {loaded.training[0].name}"
    if not comparisons and loaded.predictions:
        return f"Predicted run times of {', '.join(dict.fromkeys(each.trace for each in loaded.predictions))}"
    if not comparisons:
        return "; ".join(f"{each.synthetic} against {each.real}" for each in loaded.synthetic_scores)
    traces = ", ".join(dict.fromkeys(each.trace for each in comparisons))
    labels = comparisons[0].comparison.labels
    if len(comparisons) == 1 and len(labels) == 1:
        return f"{labels[0]} on {traces}"
    return f"Comparison of scheduling policies on {traces}"


def _summary(comparisons: Sequence[ComparisonData]) -> str:
    if len(comparisons) == 1:
        return html.summary_block(comparisons[0])
    return "".join(f"<h3>{escape(each.trace)}</h3>{html.summary_block(each)}" for each in comparisons)


def _comparison_section(data: ComparisonData, number: int, prefix: str, figures_by_name: Figures) -> Iterator[str]:
    def add(name: str, figure: ReportFigure) -> str:
        figures_by_name[f"{prefix}{name}"] = partial(_identity, figure)
        return html.figure(figure, f"f{number}-{name}")

    yield "<h3>Comparison</h3>"
    yield comparison_table(data)
    if data.significance is not None and len(data.real) > 1:
        reference = data.comparison.labels[data.reference]
        yield '<div class="pair">'
        yield add("means", figures.means(data, data.significance))
        yield add("ratios", figures.ratios(data, pairs_against(data, reference), reference))
        yield "</div>"
    gpu_data = GpuData.of(data)
    if gpu_data is not None:
        yield "<h3>GPUs</h3>"
        yield gpu_tables.gpu_sentences(gpu_data)
        yield gpu_tables.gpu_table(gpu_data)
        yield gpu_tables.preemption_table(gpu_data)
        yield gpu_tables.type_table(gpu_data)
        yield gpu_tables.priority_table(gpu_data)
    elif (why := missing_gpu_data(data)) is not None:
        yield f"<h3>GPUs</h3><p>{escape(why)}</p>"
    energy_data = EnergyData.of(data)
    if energy_data is not None:
        yield from _energy_section(energy_data, add)
    yield f"<h3>Distribution of waits and {'completion times' if data.lead.timed else 'slowdowns'}</h3>"
    yield html.shown_policies_note(data)
    yield add("shares", job_figures.cumulative_distributions(data))
    yield add("violins", job_figures.violins(data))
    yield "<h3>Over time</h3>"
    yield interactive.time_chart(data, f"time-{number}")
    figures_by_name[f"{prefix}over-time"] = partial(job_figures.over_time, data)
    if gpu_data is not None:
        yield "<h3>GPUs over time</h3>"
        yield gpu_charts.gpu_chart(gpu_data, f"gpus-{number}")
        figures_by_name[f"{prefix}gpus-over-time"] = partial(gpu_figures.gpus_over_time, gpu_data)
    if energy_data is not None:
        yield "<h3>Power over time</h3>"
        yield energy_charts.power_chart(energy_data, f"power-{number}", f"time-{number}")
        if energy_data.record.curves:
            figures_by_name[f"{prefix}power"] = partial(energy_figures.power_over_time, energy_data)
    yield "<h3>Waits by job class</h3>"
    size = "gpus" if data.node_level else "size"
    by = {kind: data.by_class(kind, limit=html.USERS) for kind in (size, "runtime", "user")}
    yield add("classes", job_figures.slowdown_by_class(data, by[size], by["runtime"]))
    yield html.class_tables(data, by)
    yield "<h3>Schedule (Gantt chart)</h3>"
    rows_by_policy = {policy: interactive.gantt_rows(data, policy) for policy in interactive.gantt_runs(data)}
    yield interactive.gantt_chart(data, f"gantt-{number}", rows_by_policy)
    sizes = interactive.size_classes(data)
    for policy, rows in rows_by_policy.items():
        name = f"{prefix}gantt-{_slug(data.comparison.labels[policy])}"
        name = f"{name}-{policy}" if name in figures_by_name else name
        figures_by_name[name] = partial(job_figures.gantt, data, policy, rows, sizes)


def _energy_section(energy_data: EnergyData, add: Callable[[str, ReportFigure], str]) -> Iterator[str]:
    yield "<h3>Energy, CO2 and cost</h3>"
    yield energy_tables.energy_table(energy_data)
    yield energy_tables.assumptions(energy_data)
    if len(energy_data.policies) > 1:
        yield add("pareto", energy_figures.energy_pareto(energy_data))
    yield add("energy-by-state", energy_figures.energy_by_state(energy_data))
    for group in energy_data.control_savings:
        yield energy_tables.control_savings_table(energy_data, group)


def _training_section(training: Sequence[TrainingData], figures_by_name: Figures) -> Iterator[str]:
    for number, each in enumerate(training):
        prefix = f"{number + 1}-{_slug(each.name)}-" if len(training) > 1 else ""
        add = partial(_add_figure, figures_by_name, prefix, f"t{number}")
        if len(training) > 1:
            yield f"<h3>{escape(each.name)}</h3>"
        yield from _agent_section(each, add, 4 if len(training) > 1 else 3)


def _agent_section(each: TrainingData, add: Callable[[str, ReportFigure], str], level: int) -> Iterator[str]:
    def heading(heading_text: str) -> str:
        return f"<h{level}>{heading_text}</h{level}>"

    if "front" in each.evaluation:
        yield heading("Evaluation on later jobs")
        yield training_tables.energy_evaluation_table(each.evaluation)
    elif "policies" in each.evaluation:
        yield heading("Evaluation on later jobs")
        yield training_tables.gpu_evaluation_table(each.evaluation)
    elif each.evaluation:
        evaluation = AgentEvaluation(each.evaluation)
        yield heading("Evaluation on later jobs")
        yield training_tables.evaluation_summary(evaluation)
        yield training_tables.evaluation_table(evaluation)
        yield add("evaluation", training_figures.evaluation_metric(evaluation))
    if each.pareto_front:
        yield heading("Results by preference")
        if len(each.pareto_front["terms"]) == 2:
            yield add("front", training_pareto.pareto_figure(each.pareto_front))
        yield training_pareto.pareto_table(each.pareto_front)
    if each.history:
        yield heading("Training curves")
        draw = training_figures.curves if each.has_updates else figures.search_curves
        yield add("training", draw(each.history, each.objective))
    if each.settings:
        yield training_tables.settings_table(each.settings)
    if each.weights or each.explained or each.fallback_policy:
        yield heading("Feature attribution")
    if each.fallback_policy:
        yield training_tables.fallback_note(each.fallback_policy)
    if each.weights:
        yield html.weights_table(each.weights)
    if each.explained:
        yield add("feature-attribution", training_figures.feature_attribution(each.explained))
        yield training_tables.feature_table(each.explained)
        yield heading("Explained decisions")
        yield training_tables.attribution_note(each.explained)
        for number, case in enumerate(each.explained["cases"], 1):
            yield training_tables.decision_block(case, each.explained["score"], level + 1, expanded=number == 1)
            if case.get("attention"):
                yield add(f"attention-{number}", training_figures.attention(case["attention"]))


def _prediction_sections(predictions: Sequence[PredictionReportData], figures_by_name: Figures) -> Iterator[str]:
    several = len(predictions) > 1
    for number, each in enumerate(predictions):
        prefix = f"{number + 1}-{_slug(each.name)}-" if several else ""
        if several:
            yield f"<h3>{escape(each.name)}</h3>"
        add = partial(_add_figure, figures_by_name, f"{prefix}predictions-", f"p{number}")
        yield from prediction_sections(each, add, 4 if several else 3)


def _synthetic_sections(
    score: SyntheticScoreData, number: int, several: bool, figures_by_name: Figures
) -> list[tuple[str, str, str]]:
    """The sections of one synthetic-workload score; a single section where the page has several scores."""
    prefix = f"{number + 1}-{_slug(score.name)}-" if several else ""
    add = partial(_add_figure, figures_by_name, f"{prefix}synthetic-", f"s{number}")
    parts = list(synthetic_sections(score, add, 4 if several else 3))
    if not several:
        return [(f"synthetic-{anchor}", heading, content) for anchor, heading, content in parts]
    html_of_all = "".join(f"<h3>{escape(heading)}</h3>{content}" for _, heading, content in parts)
    return [(f"synthetic-{number}", score.name, html_of_all)]


def _add_figure(figures_by_name: Figures, prefix: str, ids: str, name: str, figure: ReportFigure) -> str:
    """Register the figure for saving under its name, and return its HTML."""
    figures_by_name[f"{prefix}{name}"] = partial(_identity, figure)
    return html.figure(figure, f"{ids}-{name}")


def _asset(name: str) -> str:
    return files("kilowait.report").joinpath("assets", name).read_text(encoding="utf-8")


# -- folders and files ---------------------------------------------------------------------------------


def _save_figures(figures_by_name: Figures, folder: Path) -> None:
    try:
        for name, draw in figures_by_name.items():
            figures.save(draw().figure, folder, name)
    except OSError as problem:
        raise InputError(f"cannot write figures to {folder}: {problem.strerror or problem}") from None


def _slug(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "-", text).strip("-").lower() or "x"


def _identity(figure: ReportFigure) -> ReportFigure:
    return figure


def _silent(_: str) -> None:
    pass
