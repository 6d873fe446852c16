"""Figure of decision latency against queue length (left) and number of nodes (right)."""

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
    """One measurement of `benchmarks.speed.latency`."""

    @property
    def policy(self) -> str:
        """The name of the policy."""

    @property
    def queue(self) -> int:
        """Waiting jobs."""

    @property
    def nodes(self) -> int:
        """Nodes of the cluster."""

    @property
    def seconds(self) -> float:
        """Seconds per decision."""


def draw_latencies(
    measurements: Sequence[LatencyMeasurement], slopes: dict[str, tuple[float, float]], path: str | PathLike[str]
) -> Path:
    """Write the figure as PNG or SVG (suffix of `path`); `slopes`: growth with queue length and nodes, by policy."""
    matplotlib: Any = need_matplotlib()
    target = Path(path)
    panels = (("queue", "waiting jobs", 0), ("nodes", "nodes of the cluster", 1))
    with matplotlib.rc_context(STYLE):
        figure = matplotlib.figure.Figure(figsize=(9.6, 4.2), layout="constrained")
        axes = figure.subplots(1, 2, sharey=True)
        for (variable, label, panel), axis in zip(panels, axes, strict=True):
            fixed = "nodes" if variable == "queue" else "queue"
            common = _most_common([getattr(measurement, fixed) for measurement in measurements])
            for number, (policy, slope) in enumerate(slopes.items()):
                rows = sorted(
                    (getattr(measurement, variable), measurement.seconds * 1e6)
                    for measurement in measurements
                    if measurement.policy == policy and getattr(measurement, fixed) == common
                )
                axis.plot(
                    *zip(*rows, strict=True),
                    color=LINES[number % len(LINES)],
                    marker=MARKS[number % len(MARKS)],
                    markersize=5,
                    label=f"{policy}: {slope[panel]:+.2f}",
                )
            axis.set_xscale("log", base=2)
            axis.set_yscale("log")
            ticks = sorted(
                {
                    getattr(measurement, variable)
                    for measurement in measurements
                    if getattr(measurement, fixed) == common
                }
            )
            axis.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
            axis.minorticks_off()
            axis.set_xlabel(f"{label} ({common:,} {'nodes' if fixed == 'nodes' else 'waiting jobs'})")
            axis.legend(title="growth exponent", fontsize=8, title_fontsize=8, labelcolor=FAINT)
        axes[0].set_ylabel("time per decision, µs")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(target, dpi=150)
    except (OSError, ValueError) as error:
        raise InputError(f"cannot write the figure {target}: {error}; name a .png or .svg file") from None
    return target


def _most_common(values: Sequence[int]) -> int:
    """The most frequent value."""
    return max(set(values), key=lambda value: (list(values).count(value), -value))
