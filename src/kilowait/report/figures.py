"""Figures by matplotlib, drawn without its global state; here those of means, ratios and training.

Colours are Okabe and Ito's, which colour-blind readers can tell apart, and lines differ in their dashes too. A
figure in a page takes its colours from the page, light or dark; one in a file has its own.
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
from kilowait.report.comparison_data import ComparisonData
from kilowait.report.format import capital, number

__all__ = [
    "ReportFigure",
    "as_svg",
    "new_figure",
    "learning",
    "legend_columns",
    "line_numbers",
    "line_style",
    "log_axis",
    "means",
    "need_matplotlib",
    "plain",
    "ratios",
    "save",
    "span_unit",
]

INK, FAINT, GRID = "#24292f", "#57606a", "#d0d7de"
LINES = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#7F7F7F")
AGENT, CLAIRVOYANT = 5, 6
"""Numbers of the colours kept for agents and for rules that know the run times."""
DASHES = ("-", (0, (5, 1.5)), (0, (1.5, 1.2)), (0, (6, 1.5, 1.5, 1.5)), "-", (0, (4, 1)), (0, (1, 1.6)))
_THEME = {
    INK: "ink",
    FAINT: "faint",
    GRID: "grid",
    **{colour: f"line{number}" for number, colour in enumerate(LINES)},
}
"""Colours that a page may change, and the names of its CSS variables."""
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
    """A figure with its caption and the words for those who cannot see it."""

    figure: Any
    caption: str
    alt: str


def need_matplotlib() -> Any:
    """matplotlib, or a MissingExtraError that names the extra."""
    try:
        import matplotlib
        import matplotlib.backends.backend_agg
        import matplotlib.backends.backend_svg
        import matplotlib.figure
        import matplotlib.ticker
    except ImportError:
        raise MissingExtraError("matplotlib", "report") from None
    return matplotlib


def line_numbers(found: ComparisonData) -> dict[int, int]:
    """The number of the colour of each contender that is drawn; agents and clairvoyant rules have their own."""
    kinds = [found.contest.contenders[who].kind for who in found.shown]
    own = {"agent": AGENT, "clairvoyant": CLAIRVOYANT}
    numbers: dict[int, int] = {}
    for who, kind in zip(found.shown, kinds, strict=True):
        wanted = own.get(kind)
        taken = set(numbers.values())
        kept = {own[other] for other in kinds if other in own}
        free = [line for line in range(len(LINES)) if line not in taken | kept]
        numbers[who] = wanted if wanted is not None and wanted not in taken else free[0]
    return numbers


def line_style(line: int) -> dict[str, Any]:
    """Colour and dashes by number."""
    return {
        "color": LINES[line],
        "linestyle": DASHES[line],
        "linewidth": 2.4 if line == AGENT else 1.7,
    }


def means(found: ComparisonData, judged: ComparisonResult) -> ReportFigure:
    """What the page leads with, of every contender with its interval, best on top."""
    lead = found.lead
    labels, values = found.contest.labels, found.contest.means(lead.metric).tolist()
    per, unit = span_unit([v for v in values if math.isfinite(v)]) if lead.timed else (1.0, "")
    spread = {mean.contender: mean for mean in judged.means}
    rows = [who for who in reversed(found.real) if math.isfinite(values[who])]
    edges: list[float] = []
    gained = []
    with new_figure(height_in=0.9 + 0.34 * len(rows)) as (figure, axes):
        for place, who in enumerate(rows):
            colour = LINES[AGENT if found.contest.contenders[who].kind == "agent" else 0]
            mean, twin = spread[labels[who]], found.twin(who)
            ends = [end / per for end in (mean.low, mean.mean, mean.high) if math.isfinite(end)]
            reach = {"color": colour, "linewidth": 2.2, "solid_capstyle": "round"}
            axes.plot([min(ends), max(ends)], [place, place], **reach)
            axes.plot([mean.mean / per], [place], "o", color=colour, markersize=7)
            words = {"xytext": (8, 0), "textcoords": "offset points", "va": "center"}
            axes.annotate(lead.told(mean.mean), (max(ends), place), **words)
            if twin is not None and math.isfinite(values[twin]):
                ends.append(values[twin] / per)
                gained.append(
                    axes.plot([values[twin] / per], [place], "D", color=LINES[CLAIRVOYANT], markersize=5)[0]
                )
            edges += ends
        _rows_axis(axes, [plain(found.names[who]) for who in rows])
        log_axis(axes, min(edges), max(edges), room=2.2 if lead.timed else 1.5)
        what = f"{lead.words}, {unit}" if unit else lead.words
        axes.set_xlabel(_under(found, f"{what}, 95 % interval (less is better)"))
        if gained:
            legend = {"loc": "lower left", "bbox_to_anchor": (0.0, 1.0), "handletextpad": 0.2}
            axes.legend(gained[:1], ["the same rule with perfect estimates"], **legend)
    told = "; ".join(f"{labels[who]} {lead.told(values[who])}" for who in reversed(rows))
    of = f"{judged.windows} {'batches of one run' if found.contest.batched else 'windows'}"
    return ReportFigure(
        figure,
        f"{capital(lead.words)} over {of}, with bootstrap intervals. Logarithmic.",
        f"{capital(lead.words)}, best first: {told}.",
    )


def ratios(found: ComparisonData, pairs: Mapping[str, PairwiseResult], reference: str) -> ReportFigure:
    """Every contender's mean over that of the reference, with its interval: left of 1 is better."""
    rows = [pair for pair in pairs.values() if math.isfinite(pair.ratio)]
    rows.sort(key=lambda pair: -pair.ratio)
    colours = {"better": LINES[2], "worse": LINES[AGENT], "undecided": FAINT, "same": FAINT}
    with new_figure(height_in=0.9 + 0.34 * max(len(rows), 1)) as (figure, axes):
        axes.axvline(1.0, color=INK, linewidth=1.2)
        edges = [1.0]
        for place, pair in enumerate(rows):
            colour = colours[pair.verdict]
            ends = [end for end in (pair.low, pair.ratio, pair.high) if math.isfinite(end) and end > 0]
            edges += ends
            if len(ends) > 1:
                axes.plot([min(ends), max(ends)], [place, place], color=colour, linewidth=2.2)
            filled = pair.verdict in ("better", "worse")
            axes.plot(
                [pair.ratio], [place], "o", color=colour, markersize=7, fillstyle="full" if filled else "none"
            )
            axes.annotate(
                f"{number(pair.ratio)}  {pair.verdict}",
                (max(ends), place),
                xytext=(8, 0),
                textcoords="offset points",
                va="center",
                size=9,
            )
        called = dict(zip(found.contest.labels, found.names, strict=True))
        _rows_axis(axes, [plain(called[pair.ours]) for pair in rows])
        log_axis(axes, min(edges), max(edges), room=2.6)
        words = f"{found.lead.words} / that of {plain(called[reference])} (left of 1: better)"
        axes.set_xlabel(_under(found, words))
    told = "; ".join(
        f"{pair.ours} {number(pair.ratio)}, from {number(pair.low)} to {number(pair.high)}, {pair.verdict}"
        for pair in reversed(rows)
    )
    return ReportFigure(
        figure,
        f"Against {reference}, the best rule, pair by pair: ratio of the means with its 95 % interval. Hollow: not "
        "told apart, after correction for all pairs.",
        f"{capital(found.lead.words)} over that of {reference}: {told}.",
    )


def learning(history: Sequence[Mapping[str, Any]], objective: str) -> ReportFigure:
    """The agent's score over the generations of a search, relative to the rule it started from."""
    steps = [int(row["number"]) for row in history]
    training = np.array([_value(row, "training") for row in history])
    validation = np.array([_value(row, "validation") for row in history])
    known = np.isfinite(validation)
    with new_figure(height_in=3.2) as (figure, axes):
        axes.axhline(1.0, color=INK, linewidth=1.2)
        axes.plot(steps, training, color=LINES[0], linewidth=1.4, label="training")
        chosen = {"color": LINES[AGENT], "linewidth": 1.8, "markersize": 5, "label": "validation"}
        axes.plot(np.array(steps)[known], validation[known], "o-", **chosen)
        axes.set_xlabel("generation")
        axes.set_ylabel("relative to the rule")
        axes.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=2, handlelength=1.8)
        axes.margins(x=0.02)
    last = validation[known][-1] if known.any() else math.nan
    return ReportFigure(
        figure,
        f"Objective: {objective}. Training: mean of the candidates, every generation on other windows, hence noisy. "
        "Validation: jobs it was not searched on. 1 is the rule it started from; below 1 is better.",
        f"{len(steps)} generations of training; the validation score ends at {number(float(last))} of the rule.",
    )


def as_svg(figure: Any, prefix: str) -> str:
    """The figure as an inline SVG element in the page's colours; ids get `prefix`, so that several fit."""
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
        path.write_bytes(_bytes(figure, kind))
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
    """A figure with its axes, in our style, without pyplot."""

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
        """A grid of axes; `width_in` of all columns together, `heights` of the rows relative to one another."""
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

    def __exit__(self, *problem: Any) -> None:
        self._style.__exit__(*problem)


def log_axis(axes: Any, low: float, high: float, *, room: float = 1.5) -> None:
    """A logarithmic x axis with round numbers on it, and room for words to the right."""
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


def _under(found: ComparisonData, words: str) -> str:
    """The label of an axis; in two lines where long names of levers leave it little room."""
    return words.replace(" (", "\n(") if found.levered else words


def legend_columns(found: ComparisonData, most: int, *, width_in: float = 2 * WIDTH_IN) -> int:
    """Names of those drawn that fit beside one another, at most so many."""
    longest = max((len(found.names[who]) for who in found.shown), default=0)
    fit = int(width_in / (0.085 * longest + 0.6)) if found.levered else most
    return max(min(len(found.shown), most, fit), 1)


def span_unit(spans: Sequence[float]) -> tuple[float, str]:
    """Seconds in the unit that fits the longest, and its name.

    >>> span_unit([90.0, 7200.0])
    (3600.0, 'h')
    """
    longest = max(spans, default=0.0)
    return next(((per, name) for per, name in _SPANS if longest >= 1.5 * per), (1.0, "s"))


def _rows_axis(axes: Any, labels: Sequence[str]) -> None:
    axes.set_yticks(range(len(labels)), labels)
    axes.set_ylim(-0.6, max(len(labels), 1) - 0.4)
    axes.grid(axis="y", visible=False)


def plain(text: str) -> str:
    """A dollar sign would begin a formula."""
    return text.replace("$", r"\$")


def _value(row: Mapping[str, Any], key: str) -> float:
    value = row.get(key)
    return math.nan if value is None else float(value)
