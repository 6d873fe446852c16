"""The HTML report: summary, tables, figures, interactive charts and provenance in one self-contained page.

The modules in `data` select and describe the results, `figures` and `charts` draw them, and `templates` arrange them.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

from kilowait.errors import InputError
from kilowait.evaluation.comparison import Comparison
from kilowait.files import locks_output, write_text
from kilowait.report import charts
from kilowait.report import figures as drawing
from kilowait.report.data import control_savings, energy, gpu, predictions, summary, synthetic, training
from kilowait.report.data.comparison import ComparisonData
from kilowait.report.data.energy import EnergyData
from kilowait.report.data.gpu import GpuData
from kilowait.report.data.predictions import PredictionReportData
from kilowait.report.data.synthetic import SyntheticScoreData
from kilowait.report.data.training import TrainingData
from kilowait.report.data.wait_changes import WaitChanges
from kilowait.report.figures import ReportFigure
from kilowait.report.figures import comparison as comparison_figures
from kilowait.report.figures import energy as energy_figures
from kilowait.report.figures import gpu as gpu_figures
from kilowait.report.figures import predictions as prediction_figures
from kilowait.report.figures import synthetic as synthetic_figures
from kilowait.report.figures import training as training_figures
from kilowait.report.folders import LoadedRuns, RunSource, load_runs
from kilowait.report.gantt import outages
from kilowait.report.gantt_chart import GanttSchedules
from kilowait.report.markup import assets, markup, render, render_part

REPORT_TAG = '<meta name="generator" content="kilowait">'
"""The tag by which a file is recognised as a report."""
_SCRIPTS = ("packed.js", "axis.js", "view.js", "series.js", "gantt.js", "filter.js", "page.js")
_OUTAGES, _POWER, _ENERGY_STYLE = "outages.js", "power.js", "energy.css"
"""Assets that are included only in pages that need them."""
_SYNTHETIC_PARTS = {
    "summary": "Summary",
    "columns": "Columns",
    "pairs": "Correlations between columns",
    "classifier": "Classifier: real or generated",
    "arrivals": "Arrivals",
    "users": "Users",
    "scheduling": "Scheduling simulations",
    "privacy": "Privacy",
}
"""The sections on a synthetic workload, in the order of the page."""
Progress = Callable[[str], None]
Figures = dict[str, Callable[[], ReportFigure]]
"""Functions that return a figure, by file name. Figures that are not part of the page are drawn only when saved."""


@dataclass(frozen=True)
class _Section:
    anchor: str
    heading: str
    content: str
    link: str = ""
    """The text of the link where the heading is too long."""


@locks_output("out")
@locks_output("figures", inside=True)
def write_report(
    source: str | PathLike[str] | Comparison | Sequence[str | PathLike[str] | Comparison],
    out: str | PathLike[str],
    *,
    figures: str | PathLike[str] | None = None,
    title: str | None = None,
    progress: Progress | None = None,
    seed: int | None = None,
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
        seed: the seed of the bootstrap confidence intervals; None: that of each comparison's folder, otherwise 0.

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
    comparisons = [ComparisonData(item, seed or 0) for item in given if isinstance(item, Comparison)]
    comparisons += [
        ComparisonData(each.comparison, each.seed if seed is None else seed, each.bounds) for each in loaded.comparisons
    ]
    figures_by_name: Figures = {}
    text = _page(comparisons, loaded, title, report_progress, figures_by_name)
    if figures is not None:
        report_progress("writing the figures")
        _save_figures(figures_by_name, Path(figures))
    report_progress(f"writing {target}")
    try:
        write_text(target, text)
    except OSError as error:
        raise InputError(f"cannot write the page {target}: {error.strerror or error}") from None
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


def check_page(target: Path) -> None:
    """Raise an `InputError` unless the page can be written to `target`; called before any work is done."""
    try:
        if target.is_dir():
            raise InputError(f"{target} is a folder; name the file of the page, for instance {target}/report.html")
        if target.exists():
            with target.open(encoding="utf-8", errors="replace") as file:
                if REPORT_TAG not in file.read(2000):
                    raise InputError(f"{target} exists and is not a kilowait report; name another file, or remove it")
        parent = next(folder for folder in target.absolute().parents if folder.exists())
    except OSError as error:
        raise InputError(f"cannot write the page {target}: {error.strerror or error}") from None
    if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
        raise InputError(f"cannot write the page {target}: {parent} is not a writable folder")


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
    drawing.need_matplotlib()
    sections = []
    if comparisons:
        content = render("summary.html", comparisons=comparisons, summary=summary, energy=energy)
        sections.append(_Section("summary", "Summary", content))
        sections += _comparison_sections(comparisons, report_progress, figures_by_name)
    if loaded.training:
        context: dict[str, Any] = {"training": training, "figures": training_figures}
        content = _render_each("training.html", loaded.training, figures_by_name, "t", "", **context)
        sections.append(_Section("training", "Training", content))
    if loaded.predictions:
        report_progress("drawing the figures of the predictions")
        context = {"predictions": predictions, "figures": prediction_figures}
        content = _render_each("predictions.html", loaded.predictions, figures_by_name, "p", "predictions-", **context)
        sections.append(_Section("predictions", "Predicted run times", content))
    for number, score in enumerate(loaded.synthetic_scores):
        report_progress(f"drawing the figures of {score.name}")
        sections += _synthetic_sections(score, number, len(loaded.synthetic_scores) > 1, figures_by_name)
    cleaned = [each for each in comparisons if each.comparison.cleaning_report is not None]
    if cleaned:
        content = render("cleaning.html", comparisons=cleaned, summary=summary)
        sections.append(_Section("cleaning", "Cleaning report", content))
    if loaded.sources:
        content = render("provenance.html", sources=loaded.sources)
        sections.append(_Section("provenance", "Provenance", content))
    script = assets(_scripts(comparisons), "\n")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    has_energy = any(each.comparison.energy is not None for each in comparisons)
    return render(
        "page.html",
        title=title if title is not None else _title(comparisons, loaded),
        tag=markup(REPORT_TAG),
        security_policy=markup(
            f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src data:"
        ),
        sections=sections,
        style=assets(["page.css", *([_ENERGY_STYLE] if has_energy else [])]),
        script=script,
    )


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


def _comparison_sections(
    comparisons: Sequence[ComparisonData], report_progress: Progress, figures_by_name: Figures
) -> Iterable[_Section]:
    several = len(comparisons) > 1
    for number, data in enumerate(comparisons):
        report_progress(f"drawing the figures of {data.trace}")
        draw = _Drawing(figures_by_name, _prefix(number, data.trace) if several else "", f"f{number}")
        energy_data, gpu_data = EnergyData.of(data), GpuData.of(data)
        schedules = GanttSchedules(data)
        content = render(
            "comparison.html",
            number=number,
            data=data,
            summary=summary,
            figures=comparison_figures,
            gpu_data=gpu_data,
            gpu=gpu,
            energy_data=energy_data,
            energy=energy,
            control_savings=control_savings,
            energy_figures=energy_figures,
            charts=charts,
            changes=WaitChanges.of(data),
            schedules=schedules,
            draw=draw,
        )
        draw.later("over-time", comparison_figures.over_time, data)
        if gpu_data is not None:
            draw.later("gpus-over-time", gpu_figures.gpus_over_time, gpu_data)
        if energy_data is not None and energy_data.record.curves:
            draw.later("power", energy_figures.power_over_time, energy_data)
        for policy, log in schedules.logs.items():
            label = data.comparison.labels[policy]
            name = f"gantt-{_slug(label)}"
            name = f"{name}-{policy}" if draw.has(name) else name
            draw.later(name, comparison_figures.gantt, label, log, schedules.rows[policy], schedules.sizes)
        heading = data.trace if several else f"Results on {data.trace}"
        yield _Section(f"trace-{number}", heading, content, "" if several else "Results")


def _render_each(
    template: str,
    items: Sequence[TrainingData | PredictionReportData],
    figures_by_name: Figures,
    ids: str,
    prefix: str,
    **context: Any,
) -> str:
    """The content of a section with a part for each item; `ids` and `prefix` begin the names of the figures."""
    several = len(items) > 1
    parts = []
    for number, data in enumerate(items):
        draw = _Drawing(figures_by_name, f"{_prefix(number, data.name) if several else ''}{prefix}", f"{ids}{number}")
        parts.append(render(template, data=data, several=several, level=4 if several else 3, draw=draw, **context))
    return markup("").join(parts)


def _synthetic_sections(
    score: SyntheticScoreData, number: int, several: bool, figures_by_name: Figures
) -> list[_Section]:
    """The sections of one synthetic-workload score; a single section where the page has several scores."""
    prefix = f"{_prefix(number, score.name) if several else ''}synthetic-"
    draw = _Drawing(figures_by_name, prefix, f"s{number}")
    context = {"synthetic": synthetic, "figures": synthetic_figures, "level": 4 if several else 3}
    sections = [
        _Section(f"synthetic-{part}", heading, render("synthetic.html", part=part, score=score, draw=draw, **context))
        for part, heading in _SYNTHETIC_PARTS.items()
    ]
    if not several:
        return sections
    parts = [markup("<h3>{}</h3>").format(section.heading) + section.content for section in sections]
    return [_Section(f"synthetic-{number}", score.name, markup("").join(parts))]


class _Drawing:
    """Draws the figures of a section, and registers them to be saved."""

    def __init__(self, figures_by_name: Figures, prefix: str, ids: str) -> None:
        """`prefix` begins the file names of the figures, `ids` the ids of their elements."""
        self._figures, self._prefix, self._ids = figures_by_name, prefix, ids

    def __call__(self, name: str, figure: ReportFigure) -> str:
        """The HTML of a figure."""
        self.later(name, lambda: figure)
        svg = drawing.as_svg(figure.figure, f"{self._ids}-{name}").removeprefix("<svg")
        wide = figure.figure.get_size_inches()[0] > 8
        return render_part("figure", figure, markup(svg), wide)

    def later(self, name: str, draw: Callable[..., ReportFigure], *args: Any) -> None:
        """Register a figure that is drawn when the figures are saved."""
        self._figures[f"{self._prefix}{name}"] = partial(draw, *args)

    def has(self, name: str) -> bool:
        """Whether a figure of this name is registered."""
        return f"{self._prefix}{name}" in self._figures


def _save_figures(figures_by_name: Figures, folder: Path) -> None:
    try:
        for name, draw in figures_by_name.items():
            drawing.save(draw().figure, folder, name)
    except OSError as problem:
        raise InputError(f"cannot write figures to {folder}: {problem.strerror or problem}") from None


def _prefix(number: int, name: str) -> str:
    return f"{number + 1}-{_slug(name)}-"


def _slug(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "-", text).strip("-").lower() or "x"


def _silent(_: str) -> None:
    pass
