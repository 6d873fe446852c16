"""GPUs held by type, and fragments, over time; for files."""

from __future__ import annotations

import numpy as np

from kilowait.report.figures import ReportFigure, legend_columns, line_numbers, line_style, new_figure, plain
from kilowait.report.format import share
from kilowait.report.gpu.data import GpuData

__all__ = ["gpus_over_time"]


def gpus_over_time(held: GpuData, *, bins: int = 300) -> ReportFigure:
    """A panel for each type of GPU and one for fragments, a line a contender, in the typical window."""
    numbers = line_numbers(held.found)
    types = list(held.sizes)
    with new_figure(
        height_in=0.8 + 1.25 * (len(types) + 1), rows=len(types) + 1, share_x=True, columns=1
    ) as (
        figure,
        panels,
    ):
        for who, lines in held.lines.items():
            style = line_style(numbers[who]) | {"linewidth": 1.3}
            label = plain(held.found.names[who])
            for axes, series in zip(panels, (*lines.held.values(), lines.fragments), strict=True):
                edge = np.linspace(series.edge_s[0], series.edge_s[-1], bins + 1)
                value = 100 * series.mean(edge[:-1], edge[1:])
                axes.step(edge[:-1] / 86400.0, value, where="post", label=label, **style)
        for axes, name in zip(panels, (*types, "fragments"), strict=True):
            axes.set_ylabel(f"{plain(name)}, %")
            axes.set_ylim(bottom=0)
            if name != "fragments":
                axes.set_ylim(0, 104)
            axes.margins(x=0)
            axes.xaxis.set_major_formatter("{x:,g}")
            axes.yaxis.set_major_formatter("{x:,g}")
        panels[-1].set_xlabel("day of the log")
        if panels[0].lines:
            columns = legend_columns(held.found, 3)
            panels[0].legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=columns, handlelength=2.6)
        figure.align_ylabels(list(panels))
    told = "; ".join(
        f"{held.contest.labels[who]}: "
        + ", ".join(f"{row['type']} {share(row['utilization'])}" for row in rows if row["gpus"])
        for who, rows in held.types.items()
    )
    return ReportFigure(
        figure,
        "GPUs held, by type, and GPUs free but of no use to the usual job (fragments), over time.",
        f"GPUs held by type over time, and fragments. While jobs arrive: {told}.",
    )
