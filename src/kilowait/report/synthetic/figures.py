"""Figures of what goes together, what a classifier looks at, and what is given away."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kilowait.report.figures import (
    AGENT,
    FAINT,
    INK,
    LINES,
    WIDTH_IN,
    ReportFigure,
    line_style,
    need_matplotlib,
    new_figure,
    plain,
)
from kilowait.report.format import number, share
from kilowait.report.synthetic.data import SyntheticScoreData
from kilowait.report.synthetic.labels import column_words, short_words

__all__ = ["correlations", "given_away", "looked_at"]

KINDS = {
    "pearson": "logarithms (Pearson)",
    "spearman": "ranks (Spearman)",
    "cramer": "kinds (Cramér’s V)",
}
EQUAL = 1e-4
"""Distances below this are drawn as this."""
TOP = 10
"""Features shown of a classifier."""


def correlations(found: SyntheticScoreData) -> ReportFigure:
    """Heat maps: real, generated and the difference, a row for each kind of correlation."""
    by_kind = {
        kind: pairs
        for kind in KINDS
        if (pairs := [pair for pair in found.fidelity["pairs"] if pair["kind"] == kind])
    }
    names = {kind: _names(pairs) for kind, pairs in by_kind.items()}
    heights = [0.9 + 0.36 * (len(names[kind]) - 1) for kind in by_kind]
    with new_figure(
        height_in=sum(heights), rows=len(by_kind), columns=3, width_in=2 * WIDTH_IN, heights=heights
    ) as (figure, grid):
        figure.get_layout_engine().set(h_pad=0.09)
        for line, (kind, pairs) in zip(np.atleast_2d(grid), by_kind.items(), strict=True):
            for axes, (side, words) in zip(
                line, (("real", "real"), ("made", "generated"), ("difference", "difference")), strict=True
            ):
                _heat(axes, names[kind], pairs, side, labelled=side == "real")
                axes.set_title(f"{KINDS[kind]}: {words}", loc="left", size=9)
    worst = found.told["worst_pair"]
    return ReportFigure(
        figure,
        "How two columns go together, from −1 (orange) over 0 (no colour) to 1 (blue), and generated less real; where "
        "the right has no colour, what goes together in the real log does so in the generated one.",
        f"Correlations of columns. Farthest off: {column_words(str(worst['one']))} and "
        f"{column_words(str(worst['other']))}, {worst['made']:.2f} instead of {worst['real']:.2f}.",
    )


def looked_at(found: SyntheticScoreData) -> ReportFigure:
    """Which columns a classifier tells the two apart by: without and with the user's history."""
    alike = found.fidelity
    panels = [
        (alike["looked_at"], f"job by job: AUC {alike['auc']:.3f}"),
        (alike["looked_at_history"], f"with the user’s history: AUC {alike['auc_history']:.3f}"),
    ]
    most = max(min(len(parts), TOP) for parts, _ in panels)
    with new_figure(height_in=1.0 + 0.29 * most, columns=2) as (figure, grid):
        for axes, (parts, words) in zip(grid, panels, strict=True):
            rows = list(parts.items())[:TOP][::-1]
            for place, (_, part) in enumerate(rows):
                axes.barh(place, 100 * part, color=LINES[AGENT], height=0.65)
                axes.annotate(
                    share(part),
                    (100 * part, place),
                    xytext=(4, 0),
                    textcoords="offset points",
                    va="center",
                    size=8,
                )
            axes.set_yticks(range(len(rows)), [plain(column_words(name)) for name, _ in rows], size=8)
            axes.set_ylim(-0.6, len(rows) - 0.4)
            axes.set_xlim(0, 118 * max((part for _, part in rows), default=1.0))
            axes.grid(axis="y", visible=False)
            axes.set_title(words, loc="left", size=10)
            axes.set_xlabel("part of what its trees gain, %")
    told = ", ".join(
        f"{column_words(name)} {share(part)}" for name, part in list(alike["looked_at"].items())[:3]
    )
    return ReportFigure(
        figure,
        "What the classifier’s trees split by, weighed by what they gain in telling the jobs they learn from apart. "
        "Where the AUC is about 0.5 that is nothing that holds for other jobs.",
        f"The classifier has an AUC of {alike['auc']:.3f} and looks most at: {told}.",
    )


def given_away(found: SyntheticScoreData) -> ReportFigure:
    """Distances to the closest record, and how well they tell who was seen."""
    closest, guess = found.curves["closest"], found.curves["membership"]
    gave = found.leaks
    assert gave is not None  # there are no such curves otherwise
    with new_figure(height_in=4.0, columns=2) as (figure, (left, right)):
        at = np.array(closest["at"], np.float64)
        shown = np.concatenate([at[1:] > EQUAL, [True]])  # the last that is as good as equal, and all beyond
        at = np.maximum(at[shown], EQUAL)
        for name, words, line in (
            ("made_to_seen", "generated to seen", AGENT),
            ("made_to_held_out", "generated to held out", 2),
            ("held_out_to_seen", "held out to seen", 0),
        ):
            left.step(at, 100 * np.array(closest[name])[shown], where="post", label=words, **line_style(line))
        left.set_xscale("log")
        left.set_xlim(EQUAL, max(float(at.max()), 1.0))
        ticks = [10.0**power for power in range(-4, 2) if 10.0**power <= max(float(at.max()), 1.0)]
        left.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        left.minorticks_off()
        left.set_ylim(-1, 102)
        left.set_ylabel("jobs, %")
        left.set_xlabel("distance to the closest, standard deviations")
        left.legend(loc="lower right")
        right.plot([0, 100], [0, 100], color=FAINT, linewidth=1.0)
        right.plot(100 * np.array(guess["wrong"]), 100 * np.array(guess["found"]), **line_style(AGENT))
        wrong, right_ones = (100 * float(part) for part in guess["best"])
        right.plot([wrong, wrong], [wrong, right_ones], color=INK, linewidth=1.4, marker="_", markersize=6)
        words = f"advantage {right_ones - wrong:.1f} points"
        right.annotate(
            words, (wrong, (wrong + right_ones) / 2), xytext=(14, -10), textcoords="offset points", size=9
        )
        right.set_xlim(0, 100)
        right.set_ylim(0, 101)
        right.set_xlabel("held-out jobs taken for seen, %")
        right.set_ylabel("seen jobs found, %")
        right.set_title(f"AUC {gave['membership_auc']:.3f}", loc="left", size=10)
    return ReportFigure(
        figure,
        "Left: how far every job is from the closest one of another set; at the left edge they are equal, or nearly. "
        "Generated jobs that lie closer to seen jobs than held-out ones do were learned by heart. Right: guessing that "
        "a real job was seen where a generated one lies near, for every limit of near; on the diagonal it is a coin.",
        f"Median distance of a generated job to the closest seen one {number(gave['closest_seen'])}, to the closest "
        f"held-out one {number(gave['closest_held_out'])}. Membership is guessed with an AUC of "
        f"{gave['membership_auc']:.3f} and an advantage of {share(gave['membership_advantage'])}.",
    )


def _names(pairs: Sequence[Mapping[str, Any]]) -> list[str]:
    """The columns of the pairs, in order."""
    return list(dict.fromkeys([pair["one"] for pair in pairs] + [pair["other"] for pair in pairs]))


def _heat(
    axes: Any, names: Sequence[str], pairs: Sequence[Mapping[str, Any]], side: str, *, labelled: bool
) -> None:
    """The lower triangle: every pair once."""
    patches = need_matplotlib().patches
    last = len(names) - 1
    for pair in pairs:
        value = float(pair["made"]) - float(pair["real"]) if side == "difference" else float(pair[side])
        column, row = names.index(pair["one"]), last - names.index(pair["other"])
        colour = LINES[0 if value > 0 else AGENT]
        axes.add_patch(
            patches.Rectangle(
                (column - 0.48, row - 0.46),
                0.96,
                0.92,
                facecolor=colour,
                alpha=0.8 * min(abs(value), 1.0),
                linewidth=0,
            )
        )
        value = 0.0 if abs(value) < 0.005 else value
        words = f"{value:+.2f}" if side == "difference" and value else f"{value:.2f}"
        axes.text(column, row, words.replace("-", "−"), ha="center", va="center", size=8)
    axes.set_xlim(-0.5, last - 0.5)
    axes.set_ylim(-0.5, last - 0.5)
    axes.set_xticks(range(last), [short_words(name) for name in names[:-1]], size=8)
    rows = [short_words(name) for name in reversed(names[1:])]
    axes.set_yticks(range(last), rows if labelled else [""] * last, size=8)
    axes.grid(visible=False)
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)
