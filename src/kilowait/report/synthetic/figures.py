"""Figures of a synthetic workload: correlations, feature importance of the classifier, and privacy."""

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
    escape_dollar,
    line_style,
    need_matplotlib,
    new_figure,
)
from kilowait.report.format import number, share
from kilowait.report.synthetic.data import SyntheticScoreData
from kilowait.report.synthetic.labels import column_label, short_column_label

__all__ = ["correlations", "privacy", "feature_importance"]

KINDS = {"pearson": "logarithms (Pearson)", "spearman": "ranks (Spearman)", "cramer": "categories (Cramér’s V)"}
EQUAL = 1e-4
"""The lower end of the distance axis; smaller distances are drawn there."""
TOP = 10
"""The number of features of the classifier that are drawn."""


def correlations(score: SyntheticScoreData) -> ReportFigure:
    """Heat maps of correlations: real, generated and their difference, a row for each kind of correlation."""
    pairs_by_kind = {
        kind: pairs for kind in KINDS if (pairs := [pair for pair in score.fidelity["pairs"] if pair["kind"] == kind])
    }
    names = {kind: _names(pairs) for kind, pairs in pairs_by_kind.items()}
    heights = [0.9 + 0.36 * (len(names[kind]) - 1) for kind in pairs_by_kind]
    with new_figure(
        height_in=sum(heights), rows=len(pairs_by_kind), columns=3, width_in=2 * WIDTH_IN, heights=heights
    ) as (figure, grid):
        figure.get_layout_engine().set(h_pad=0.09)
        for line, (kind, pairs) in zip(np.atleast_2d(grid), pairs_by_kind.items(), strict=True):
            for axes, (side, label) in zip(
                line, (("real", "real"), ("synthetic", "generated"), ("difference", "difference")), strict=True
            ):
                _heat_map(axes, names[kind], pairs, side, labelled=side == "real")
                axes.set_title(f"{KINDS[kind]}: {label}", loc="left", size=9)
    worst = score.results["worst_pair"]
    return ReportFigure(
        figure,
        "Correlations between columns, from −1 (orange) over 0 (no colour) to 1 (blue), and generated minus real; "
        "where "
        "the right has no colour, the generated workload preserves the correlation.",
        f"Correlations between columns. Largest difference: {column_label(str(worst['one']))} and "
        f"{column_label(str(worst['other']))}, {worst['synthetic']:.2f} instead of {worst['real']:.2f}.",
    )


def feature_importance(score: SyntheticScoreData) -> ReportFigure:
    """Feature importance of the classifiers without and with the user's history."""
    fidelity = score.fidelity
    panels = [
        (fidelity["feature_importance"], f"single jobs: AUC {fidelity['auc']:.3f}"),
        (fidelity["feature_importance_history"], f"with the user’s history: AUC {fidelity['auc_history']:.3f}"),
    ]
    rows_shown = max(min(len(parts), TOP) for parts, _ in panels)
    with new_figure(height_in=1.0 + 0.29 * rows_shown, columns=2) as (figure, grid):
        for axes, (parts, label) in zip(grid, panels, strict=True):
            rows = list(parts.items())[:TOP][::-1]
            for place, (_, part) in enumerate(rows):
                axes.barh(place, 100 * part, color=LINES[AGENT], height=0.65)
                axes.annotate(
                    share(part), (100 * part, place), xytext=(4, 0), textcoords="offset points", va="center", size=8
                )
            axes.set_yticks(range(len(rows)), [escape_dollar(column_label(name)) for name, _ in rows], size=8)
            axes.set_ylim(-0.6, len(rows) - 0.4)
            axes.set_xlim(0, 118 * max((part for _, part in rows), default=1.0))
            axes.grid(axis="y", visible=False)
            axes.set_title(label, loc="left", size=10)
            axes.set_xlabel("share of the total gain, %")
    alt = ", ".join(
        f"{column_label(name)} {share(part)}" for name, part in list(fidelity["feature_importance"].items())[:3]
    )
    return ReportFigure(
        figure,
        "Feature importance of the classifier: gain of its splits on the training jobs. Where the AUC is about "
        "0.5, the "
        "importance does not generalize to other jobs.",
        f"The classifier has an AUC of {fidelity['auc']:.3f}. Most important features: {alt}.",
    )


def privacy(score: SyntheticScoreData) -> ReportFigure:
    """Distances to the closest record, and the ROC curve of membership inference from them."""
    closest, roc = score.curves["closest"], score.curves["membership"]
    metrics = score.privacy
    assert metrics is not None  # the curves exist only with held-out jobs
    with new_figure(height_in=4.0, columns=2) as (figure, (left, right)):
        at = np.array(closest["at"], np.float64)
        shown = np.concatenate([at[1:] > EQUAL, [True]])  # the last point below EQUAL, and all above
        at = np.maximum(at[shown], EQUAL)
        for name, label, line in (
            ("synthetic_to_seen", "generated to training", AGENT),
            ("synthetic_to_held_out", "generated to held out", 2),
            ("held_out_to_seen", "held out to training", 0),
        ):
            left.step(at, 100 * np.array(closest[name])[shown], where="post", label=label, **line_style(line))
        left.set_xscale("log")
        left.set_xlim(EQUAL, max(float(at.max()), 1.0))
        ticks = [10.0**power for power in range(-4, 2) if 10.0**power <= max(float(at.max()), 1.0)]
        left.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        left.minorticks_off()
        left.set_ylim(-1, 102)
        left.set_ylabel("jobs, %")
        left.set_xlabel("distance to the closest record, standard deviations")
        left.legend(loc="lower right")
        right.plot([0, 100], [0, 100], color=FAINT, linewidth=1.0)
        right.plot(
            100 * np.array(roc["false_positive_rate"]), 100 * np.array(roc["true_positive_rate"]), **line_style(AGENT)
        )
        false_positives, true_positives = (100 * float(part) for part in roc["best"])
        right.plot(
            [false_positives, false_positives],
            [false_positives, true_positives],
            color=INK,
            linewidth=1.4,
            marker="_",
            markersize=6,
        )
        label = f"advantage {true_positives - false_positives:.1f} points"
        right.annotate(
            label,
            (false_positives, (false_positives + true_positives) / 2),
            xytext=(14, -10),
            textcoords="offset points",
            size=9,
        )
        right.set_xlim(0, 100)
        right.set_ylim(0, 101)
        right.set_xlabel("false positive rate (held-out jobs), %")
        right.set_ylabel("true positive rate (training jobs), %")
        right.set_title(f"AUC {metrics['membership_auc']:.3f}", loc="left", size=10)
    return ReportFigure(
        figure,
        "Left: distance of every job to the closest job of another set; at the left edge they are (nearly) equal. "
        "Generated jobs that are closer to training jobs than held-out jobs are were memorized. Right: ROC curve of "
        "membership inference (a real job close to a generated one is taken for a training job); the diagonal is "
        "chance.",
        f"Median distance of a generated job to the closest training job {number(metrics['closest_seen'])}, to the "
        "closest "
        f"held-out job {number(metrics['closest_held_out'])}. Membership inference has an AUC of "
        f"{metrics['membership_auc']:.3f} and an advantage of {share(metrics['membership_advantage'])}.",
    )


def _names(pairs: Sequence[Mapping[str, Any]]) -> list[str]:
    """The column names of the pairs, in order."""
    return list(dict.fromkeys([pair["one"] for pair in pairs] + [pair["other"] for pair in pairs]))


def _heat_map(
    axes: Any, names: Sequence[str], pairs: Sequence[Mapping[str, Any]], side: str, *, labelled: bool
) -> None:
    """Draw the lower triangle of a correlation matrix."""
    patches = need_matplotlib().patches
    last = len(names) - 1
    for pair in pairs:
        value = float(pair["synthetic"]) - float(pair["real"]) if side == "difference" else float(pair[side])
        column, row = names.index(pair["one"]), last - names.index(pair["other"])
        colour = LINES[0 if value > 0 else AGENT]
        axes.add_patch(
            patches.Rectangle(
                (column - 0.48, row - 0.46), 0.96, 0.92, facecolor=colour, alpha=0.8 * min(abs(value), 1.0), linewidth=0
            )
        )
        value = 0.0 if abs(value) < 0.005 else value
        label = f"{value:+.2f}" if side == "difference" and value else f"{value:.2f}"
        axes.text(column, row, label.replace("-", "−"), ha="center", va="center", size=8)
    axes.set_xlim(-0.5, last - 0.5)
    axes.set_ylim(-0.5, last - 0.5)
    axes.set_xticks(range(last), [short_column_label(name) for name in names[:-1]], size=8)
    rows = [short_column_label(name) for name in reversed(names[1:])]
    axes.set_yticks(range(last), rows if labelled else [""] * last, size=8)
    axes.grid(visible=False)
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)
