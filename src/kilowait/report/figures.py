"""Matplotlib figures of the report: style, saving, and the figures of means, ratios and CMA-ES training.

Drawn without pyplot's global state. Colours are the colour-blind-safe palette of Okabe and Ito, and lines also differ
in their dashes. A figure in a page takes the colours of the page (light or dark); a saved figure has its own.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kilowait.errors import MissingExtraError
from kilowait.evaluation.comparison import ComparisonResult, PairwiseResult
from kilowait.files import write_bytes
from kilowait.report.comparison_data import ComparisonData
from kilowait.report.format import capital, number

__all__ = [
    "ReportFigure",
    "as_svg",
    "new_figure",
    "search_curves",
    "legend_columns",
    "colour_numbers",
    "line_style",
    "log_axis",
    "means",
    "need_matplotlib",
    "escape_dollar",
    "ratios",
    "save",
    "span_unit",
]

INK, FAINT, GRID = "#24292f", "#57606a", "#d0d7de"
LINES = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#7F7F7F")
AGENT, CLAIRVOYANT = 5, 6
"""Numbers of the colours reserved for agents and for policies with perfect estimates."""
DASHES = ("-", (0, (5, 1.5)), (0, (1.5, 1.2)), (0, (6, 1.5, 1.5, 1.5)), "-", (0, (4, 1)), (0, (1, 1.6)))
_THEME = {INK: "ink", FAINT: "faint", GRID: "grid", **{colour: f"line{number}" for number, colour in enumerate(LINES)}}
"""Colours that the page replaces, and their CSS variables."""
_SPANS = ((86400.0, "days"), (3600.0, "h"), (60.0, "min"), (1.0, "s"))
WIDTH_IN = 5.8
STYLE: dict[str, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.7,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.frameon": False,
    "svg.hashsalt": "kilowait",
    "svg.fonttype": "path",
    "path.simplify": True,
}


@dataclass(frozen=True, eq=False)
class ReportFigure:
    """A figure with its caption and alternative text."""

    figure: Any
    caption: str
    alt: str


def need_matplotlib() -> Any:
    """Import matplotlib, or raise a `MissingExtraError` that names the extra."""
    try:
        import matplotlib
        import matplotlib.backends.backend_agg
        import matplotlib.backends.backend_svg
        import matplotlib.figure
        import matplotlib.ticker
    except ImportError:
        raise MissingExtraError("matplotlib", "report") from None
    return matplotlib


def colour_numbers(data: ComparisonData) -> dict[int, int]:
    """Colour number of each policy that is drawn; agents and policies with perfect estimates have reserved colours."""
    kinds = [data.comparison.policies[policy].kind for policy in data.shown]
    reserved = {"agent": AGENT, "clairvoyant": CLAIRVOYANT}
    numbers: dict[int, int] = {}
    for policy, kind in zip(data.shown, kinds, strict=True):
        preferred = reserved.get(kind)
        taken = set(numbers.values())
        reserved_now = {reserved[other] for other in kinds if other in reserved}
        free = [line for line in range(len(LINES)) if line not in taken | reserved_now]
        numbers[policy] = preferred if preferred is not None and preferred not in taken else free[0]
    return numbers


def line_style(line: int) -> dict[str, Any]:
    """Matplotlib line properties (colour, dashes, width) by colour number."""
    return {"color": LINES[line], "linestyle": DASHES[line], "linewidth": 2.4 if line == AGENT else 1.7}


def means(data: ComparisonData, significance: ComparisonResult) -> ReportFigure:
    """Lead metric of every policy with its confidence interval, best on top."""
    lead = data.lead
    labels, values = data.comparison.labels, data.comparison.means(lead.metric).tolist()
    unit_s, unit = span_unit([v for v in values if math.isfinite(v)]) if lead.timed else (1.0, "")
    intervals = {mean.policy: mean for mean in significance.means}
    rows = [policy for policy in reversed(data.real) if math.isfinite(values[policy])]
    limits: list[float] = []
    clairvoyant_marks = []
    with new_figure(height_in=0.9 + 0.34 * len(rows)) as (figure, axes):
        for row, policy in enumerate(rows):
            colour = LINES[AGENT if data.comparison.policies[policy].kind == "agent" else 0]
            mean, clairvoyant = intervals[labels[policy]], data.clairvoyant(policy)
            ends = [end / unit_s for end in (mean.low, mean.mean, mean.high) if math.isfinite(end)]
            style = {"color": colour, "linewidth": 2.2, "solid_capstyle": "round"}
            axes.plot([min(ends), max(ends)], [row, row], **style)
            axes.plot([mean.mean / unit_s], [row], "o", color=colour, markersize=7)
            offset = {"xytext": (8, 0), "textcoords": "offset points", "va": "center"}
            axes.annotate(lead.format(mean.mean), (max(ends), row), **offset)
            if clairvoyant is not None and math.isfinite(values[clairvoyant]):
                ends.append(values[clairvoyant] / unit_s)
                clairvoyant_marks.append(
                    axes.plot([values[clairvoyant] / unit_s], [row], "D", color=LINES[CLAIRVOYANT], markersize=5)[0]
                )
            limits += ends
        _rows_axis(axes, [escape_dollar(data.names[policy]) for policy in rows])
        log_axis(axes, min(limits), max(limits), room=2.2 if lead.timed else 1.5)
        quantity = f"{lead.label}, {unit}" if unit else lead.label
        axes.set_xlabel(_axis_label(data, f"{quantity}, 95 % interval (less is better)"))
        if clairvoyant_marks:
            legend = {"loc": "lower left", "bbox_to_anchor": (0.0, 1.0), "handletextpad": 0.2}
            axes.legend(clairvoyant_marks[:1], ["the same policy with perfect estimates"], **legend)
    alt = "; ".join(f"{labels[policy]} {lead.format(values[policy])}" for policy in reversed(rows))
    samples = f"{significance.windows} {'batches of one run' if data.comparison.batched else 'windows'}"
    return ReportFigure(
        figure,
        f"{capital(lead.label)} over {samples}, with bootstrap intervals. Logarithmic axis.",
        f"{capital(lead.label)}, best first: {alt}.",
    )


def ratios(data: ComparisonData, pairs: Mapping[str, PairwiseResult], reference: str) -> ReportFigure:
    """Ratio of every policy's mean to that of the reference, with its confidence interval: left of 1 is better."""
    rows = [pair for pair in pairs.values() if math.isfinite(pair.ratio)]
    rows.sort(key=lambda pair: -pair.ratio)
    colours = {"better": LINES[2], "worse": LINES[AGENT], "undecided": FAINT, "same": FAINT}
    with new_figure(height_in=0.9 + 0.34 * max(len(rows), 1)) as (figure, axes):
        axes.axvline(1.0, color=INK, linewidth=1.2)
        limits = [1.0]
        for row, pair in enumerate(rows):
            colour = colours[pair.verdict]
            ends = [end for end in (pair.low, pair.ratio, pair.high) if math.isfinite(end) and end > 0]
            limits += ends
            if len(ends) > 1:
                axes.plot([min(ends), max(ends)], [row, row], color=colour, linewidth=2.2)
            filled = pair.verdict in ("better", "worse")
            axes.plot([pair.ratio], [row], "o", color=colour, markersize=7, fillstyle="full" if filled else "none")
            axes.annotate(
                f"{number(pair.ratio)}  {pair.verdict}",
                (max(ends), row),
                xytext=(8, 0),
                textcoords="offset points",
                va="center",
                size=9,
            )
        names = dict(zip(data.comparison.labels, data.names, strict=True))
        _rows_axis(axes, [escape_dollar(names[pair.ours]) for pair in rows])
        log_axis(axes, min(limits), max(limits), room=2.6)
        label = f"{data.lead.label} relative to {escape_dollar(names[reference])} (left of 1: better)"
        axes.set_xlabel(_axis_label(data, label))
    alt = "; ".join(
        f"{pair.ours} {number(pair.ratio)}, from {number(pair.low)} to {number(pair.high)}, {pair.verdict}"
        for pair in reversed(rows)
    )
    return ReportFigure(
        figure,
        f"Pairwise comparison with {reference}, the reference policy: ratio of the means with 95 % interval. Hollow: "
        "not significantly different after correction for multiple comparisons.",
        f"{capital(data.lead.label)} relative to that of {reference}: {alt}.",
    )


def search_curves(history: Sequence[Mapping[str, Any]], objective: str) -> ReportFigure:
    """The agent's score over the generations of a CMA-ES search, relative to the initial policy."""
    steps = [int(row["number"]) for row in history]
    training = np.array([_value(row, "training") for row in history])
    validation = np.array([_value(row, "validation") for row in history])
    validated = np.isfinite(validation)
    with new_figure(height_in=3.2) as (figure, axes):
        axes.axhline(1.0, color=INK, linewidth=1.2)
        axes.plot(steps, training, color=LINES[0], linewidth=1.4, label="training")
        style = {"color": LINES[AGENT], "linewidth": 1.8, "markersize": 5, "label": "validation"}
        axes.plot(np.array(steps)[validated], validation[validated], "o-", **style)
        axes.set_xlabel("generation")
        axes.set_ylabel("relative to the initial policy")
        axes.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=2, handlelength=1.8)
        axes.margins(x=0.02)
    last = validation[validated][-1] if validated.any() else math.nan
    return ReportFigure(
        figure,
        f"Objective: {objective}. Training: mean of the candidates; each generation uses other windows, hence the "
        "noise. "
        "Validation: jobs not used in the search. 1 is the initial policy; below 1 is better.",
        f"{len(steps)} generations of training; the final validation score is {number(float(last))} relative to "
        "the initial policy.",
    )


def as_svg(figure: Any, prefix: str) -> str:
    """The figure as an inline SVG element in the page's colours; ids get `prefix` to be unique within the page."""
    text = _bytes(figure, "svg").decode("utf-8")
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'\bid="([^"]+)"', rf'id="{prefix}-\1"', text)
    text = re.sub(r'href="#([^"]+)"', rf'href="#{prefix}-\1"', text)
    text = re.sub(r"url\(#([^)]+)\)", rf"url(#{prefix}-\1)", text)
    for colour, name in _THEME.items():
        text = re.sub(colour, f"var(--{name})", text, flags=re.IGNORECASE)
    return text


def save(figure: Any, folder: Path, name: str) -> list[Path]:
    """Write NAME.png and NAME.svg into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for kind in ("png", "svg"):
        path = folder / f"{name}.{kind}"
        write_bytes(path, _bytes(figure, kind))
        paths.append(path)
    return paths


def _bytes(figure: Any, kind: str) -> bytes:
    matplotlib = need_matplotlib()
    metadata = {"Date": None} if kind == "svg" else {"Software": "kilowait"}
    out = io.BytesIO()
    opaque = {"facecolor": "white"} if kind == "png" else {"transparent": True}
    with matplotlib.rc_context(STYLE):
        figure.savefig(out, format=kind, dpi=200, metadata=metadata, **opaque)
    return out.getvalue()


class new_figure:
    """Context manager: a figure and its axes in the report's style, without pyplot."""

    def __init__(
        self,
        *,
        height_in: float,
        rows: int = 1,
        columns: int = 1,
        share_x: bool = False,
        width_in: float | None = None,
        heights: Sequence[float] | None = None,
    ) -> None:
        """A grid of axes; `width_in` is the total width, `heights` are the relative heights of the rows."""
        self._matplotlib = need_matplotlib()
        self._style = self._matplotlib.rc_context(STYLE)
        width = WIDTH_IN * columns if width_in is None else width_in
        self._size, self._grid, self._share = (width, height_in), (rows, columns), share_x
        self._heights = heights

    def __enter__(self) -> tuple[Any, Any]:
        self._style.__enter__()
        figure = self._matplotlib.figure.Figure(figsize=self._size, layout="constrained")
        self._matplotlib.backends.backend_agg.FigureCanvasAgg(figure)
        return figure, figure.subplots(*self._grid, sharex=self._share, height_ratios=self._heights)

    def __exit__(self, *error: Any) -> None:
        self._style.__exit__(*error)


def log_axis(axes: Any, low: float, high: float, *, room: float = 1.5) -> None:
    """Make the x axis logarithmic with round ticks; `room` is the factor of extra space for labels at the right."""
    axes.set_xscale("log")
    low, high = max(low, 1e-3), max(high, 1e-3)
    bottom, top = low * 0.85, max(high, low * 1.5) * room
    axes.set_xlim(bottom, top)
    decades = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 2)
    mantissas = (1, 2, 3, 5, 7) if top / bottom < 8 else (1, 2, 5) if top / bottom < 2000 else (1,)
    ticks = [mantissa * 10.0**decade for decade in decades for mantissa in mantissas]
    shown = [tick for tick in ticks if bottom <= tick <= max(high, low * 1.5) * 1.5]
    axes.set_xticks(shown, [f"{tick:,g}" for tick in shown])
    axes.minorticks_off()


def _axis_label(data: ComparisonData, label: str) -> str:
    """An axis label, broken into two lines where long names of power controls leave little space."""
    return label.replace(" (", "\n(") if data.has_power_controls else label


def legend_columns(data: ComparisonData, limit: int, *, width_in: float = 2 * WIDTH_IN) -> int:
    """The number of legend columns that fit, at most `most`."""
    longest = max((len(data.names[policy]) for policy in data.shown), default=0)
    fitting = int(width_in / (0.085 * longest + 0.6)) if data.has_power_controls else limit
    return max(min(len(data.shown), limit, fitting), 1)


def span_unit(spans: Sequence[float]) -> tuple[float, str]:
    """The unit that suits the longest of some durations: its seconds and its name.

    >>> span_unit([90.0, 7200.0])
    (3600.0, 'h')
    """
    longest = max(spans, default=0.0)
    return next(((unit_s, name) for unit_s, name in _SPANS if longest >= 1.5 * unit_s), (1.0, "s"))


def _rows_axis(axes: Any, labels: Sequence[str]) -> None:
    axes.set_yticks(range(len(labels)), labels)
    axes.set_ylim(-0.6, max(len(labels), 1) - 0.4)
    axes.grid(axis="y", visible=False)


def escape_dollar(text: str) -> str:
    """Escape dollar signs, which would start a formula in matplotlib."""
    return text.replace("$", r"\$")


def _value(row: Mapping[str, Any], key: str) -> float:
    value = row.get(key)
    return math.nan if value is None else float(value)
