"""Matplotlib figures of the pages: their style, axes and legends, and saving; a module for each topic.

Drawn without pyplot's global state. Colours are the colour-blind-safe palette of Okabe and Ito, and lines also differ
in their dashes. A figure in a page takes the colours of the page (light or dark); a saved figure has its own.
"""

from __future__ import annotations

import io
import math
import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kilowait.errors import MissingExtraError
from kilowait.files import write_bytes
from kilowait.report.data.comparison import AGENT, ComparisonData

INK, FAINT, GRID = "#24292f", "#57606a", "#d0d7de"
LINES = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#7F7F7F")
DASHES = ("-", (0, (5, 1.5)), (0, (1.5, 1.2)), (0, (6, 1.5, 1.5, 1.5)), "-", (0, (4, 1)), (0, (1, 1.6)))
_THEME = {INK: "ink", FAINT: "faint", GRID: "grid", **{colour: f"line{number}" for number, colour in enumerate(LINES)}}
"""Colours that the page replaces, and their CSS variables."""
_WAIT_TICKS = {1.0: "1 s", 60.0: "1 min", 3600.0: "1 h", 86400.0: "1 day", 604800.0: "1 week", 31536000.0: "1 year"}
_SPANS = ((86400.0, "days"), (3600.0, "h"), (60.0, "min"), (1.0, "s"))
WIDTH_IN = 5.8
ROW_LABEL_WIDTH = 32
"""Characters of a line in the label of a row."""
STYLE: dict[str, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "xaxis.labellocation": "right",  # a label that is longer than the axis extends below the names of the rows
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


def line_style(line: int) -> dict[str, Any]:
    """Matplotlib line properties (colour, dashes, width) by colour number."""
    return {"color": LINES[line], "linestyle": DASHES[line], "linewidth": 2.4 if line == AGENT else 1.7}


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


def whole_width(panels: Any) -> Any:
    """The first of two panels, enlarged to the width of both."""
    panels[1].remove()
    panels[0].set_subplotspec(panels[0].get_gridspec()[:])
    return panels[0]


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


def wait_axis(axes: Any, longest: float, *, shortest: float = 1.0) -> None:
    """Make the x axis a logarithmic axis of durations, by default from one second."""
    axes.set_xscale("log")
    longest = max(longest, 60.0 * shortest)
    axes.set_xlim(0.9 * shortest, longest)
    ticks = {at: label for at, label in _WAIT_TICKS.items() if 0.9 * shortest <= at <= longest}
    axes.set_xticks(list(ticks), list(ticks.values()))
    axes.minorticks_off()


def slowdown_axis(axes: Any, longest: float) -> None:
    """Make the x axis a logarithmic axis of slowdowns that starts at 1."""
    axes.set_xscale("log")
    top = max(longest, 10.0)
    axes.set_xlim(0.9, top * 1.1)
    ticks = [10.0**power for power in range(math.ceil(math.log10(top)) + 1)]
    axes.set_xticks([tick for tick in ticks if tick <= top * 1.1], [f"{t:,g}" for t in ticks if t <= top * 1.1])
    axes.minorticks_off()


def round_y(axes: Any) -> None:
    """Give a logarithmic y axis round ticks."""
    low, high = axes.get_ylim()
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    mantissas = (1, 2, 5) if high / low < 200 else (1,)
    ticks = [m * 10.0**d for d in decades for m in mantissas if low <= m * 10.0**d <= high]
    axes.set_yticks(ticks, [f"{tick:,g}" for tick in ticks])
    axes.minorticks_off()


def legend_columns(data: ComparisonData, limit: int, *, width_in: float = 2 * WIDTH_IN) -> int:
    """The number of legend columns that fit, at most `limit`."""
    longest = max((len(data.names[policy]) for policy in data.shown), default=0)
    fitting = int(width_in / (0.085 * longest + 0.6))
    return max(min(len(data.shown), limit, fitting), 1)


def legend_above(axes: Any, columns: int, **style: Any) -> None:
    """The legend of the axes, above them at the left."""
    axes.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=columns, **style)


def legend_outside(figure: Any, axes: Any, columns: int) -> None:
    """The legend of the axes, above all axes of the figure."""
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper left", ncols=columns, handlelength=2.6)


def annotate(axes: Any, text: str, point: tuple[float, float], x: float = 8, y: float = 0, **style: Any) -> Any:
    """Write a text beside a point, at an offset in typographic points; vertically centred unless `va` is given."""
    return axes.annotate(text, point, xytext=(x, y), textcoords="offset points", **{"va": "center"} | style)


def interval_mark(
    axes: Any,
    row: int,
    value: float,
    ends: Sequence[float],
    text: str,
    colour: str,
    *,
    filled: bool = True,
    size: int | None = None,
    **style: Any,
) -> None:
    """A value in a row of a chart with its interval, between the smallest and the largest of `ends`, and a text."""
    if len(ends) > 1:
        axes.plot([min(ends), max(ends)], [row, row], color=colour, linewidth=2.2, **style)
    axes.plot([value], [row], "o", color=colour, markersize=7, fillstyle="full" if filled else "none")
    annotate(axes, text, (max(ends), row), **({} if size is None else {"size": size}))


def row_labels(axes: Any, labels: Sequence[str], *, rows: int | None = None, **style: Any) -> None:
    """Label the rows 0, 1, ... of a chart with one bar or point for each row; `rows` if there is space for more."""
    axes.set_yticks(range(len(labels)), [wrapped(label) for label in labels], **style)
    axes.set_ylim(-0.6, (max(len(labels), 1) if rows is None else rows) - 0.4)
    axes.grid(axis="y", visible=False)


def wrapped(label: str, width: int = ROW_LABEL_WIDTH) -> str:
    """A label in lines of at most `width` characters; its own lines stay.

    >>> wrapped("saf, sleep=break-even+dvfs=1.1", 24).splitlines()
    ['saf, sleep=break-', 'even+dvfs=1.1']
    """
    lines = [line for part in label.split("\n") for line in textwrap.wrap(part, width) or [""]]
    return "\n".join(lines)


def span_unit(spans: Sequence[float]) -> tuple[float, str]:
    """The unit that suits the longest of some durations: its seconds and its name.

    >>> span_unit([90.0, 7200.0])
    (3600.0, 'h')
    """
    longest = max(spans, default=0.0)
    return next(((unit_s, name) for unit_s, name in _SPANS if longest >= 1.5 * unit_s), (1.0, "s"))


def escape_dollar(text: str) -> str:
    """Escape dollar signs, which would start a formula in matplotlib."""
    return text.replace("$", r"\$")
