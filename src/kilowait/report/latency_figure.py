"""The figure of decision latencies: against the queue on the left, against the machine on the right."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Protocol

from kilowait.errors import InputError
from kilowait.report.figures import FAINT, LINES, STYLE, need_matplotlib

__all__ = ["draw_latencies"]

MARKS = ("o", "s", "^", "D", "v", "P", "X")


class LatencyMeasurement(Protocol):
    """One figure, as `kilowait.experiments.bench_latency` gives it."""

    @property
    def decider(self) -> str:
        """Who decides."""

    @property
    def queue(self) -> int:
        """Jobs that wait."""

    @property
    def nodes(self) -> int:
        """Of the machine."""

    @property
    def seconds(self) -> float:
        """A decision."""


def draw_latencies(
    found: Sequence[LatencyMeasurement], slopes: dict[str, tuple[float, float]], path: str | PathLike[str]
) -> Path:
    """Write the figure as PNG or SVG, by the ending of `path`; `slopes` by decider: along the queue and the nodes."""
    matplotlib: Any = need_matplotlib()
    target = Path(path)
    panels = (("queue", "waiting jobs", 0), ("nodes", "nodes of the machine", 1))
    with matplotlib.rc_context(STYLE):
        figure = matplotlib.figure.Figure(figsize=(9.6, 4.2), layout="constrained")
        axes = figure.subplots(1, 2, sharey=True)
        for (along, label, which), axis in zip(panels, axes, strict=True):
            fixed = "nodes" if along == "queue" else "queue"
            usual = _usual([getattr(one, fixed) for one in found])
            for number, (decider, slope) in enumerate(slopes.items()):
                rows = sorted(
                    (getattr(one, along), one.seconds * 1e6)
                    for one in found
                    if one.decider == decider and getattr(one, fixed) == usual
                )
                axis.plot(
                    *zip(*rows, strict=True),
                    color=LINES[number % len(LINES)],
                    marker=MARKS[number % len(MARKS)],
                    markersize=5,
                    label=f"{decider}: {slope[which]:+.2f}",
                )
            axis.set_xscale("log", base=2)
            axis.set_yscale("log")
            places = sorted({getattr(one, along) for one in found if getattr(one, fixed) == usual})
            axis.set_xticks(places, [f"{place:,}" for place in places])
            axis.minorticks_off()
            axis.set_xlabel(f"{label} ({usual:,} {'nodes' if fixed == 'nodes' else 'jobs wait'})")
            axis.legend(title="power of growth", fontsize=8, title_fontsize=8, labelcolor=FAINT)
        axes[0].set_ylabel("a decision, µs")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(target, dpi=150)
    except (OSError, ValueError) as problem:
        raise InputError(f"cannot write the figure {target}: {problem}; name a .png or .svg file") from None
    return target


def _usual(values: Sequence[int]) -> int:
    """The value most figures share."""
    return max(set(values), key=lambda value: (list(values).count(value), -value))
