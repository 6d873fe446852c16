"""Figure of GPU allocation by type and fragmentation over time, only for saved figures."""

from __future__ import annotations

import numpy as np

from kilowait.report.data.gpu import GpuData
from kilowait.report.figures import ReportFigure, escape_dollar, legend_above, legend_columns, line_style, new_figure
from kilowait.report.format import share


def gpus_over_time(gpu_data: GpuData, *, bins: int = 300) -> ReportFigure:
    """A panel for each GPU type and one for fragmentation in the typical window, one line for each policy."""
    numbers = gpu_data.data.colour_numbers
    types = list(gpu_data.timeline.sizes)
    with new_figure(height_in=0.8 + 1.25 * (len(types) + 1), rows=len(types) + 1, share_x=True, columns=1) as (
        figure,
        panels,
    ):
        for policy, lines in gpu_data.timeline.lines.items():
            style = line_style(numbers[policy]) | {"linewidth": 1.3}
            label = escape_dollar(gpu_data.data.names[policy])
            for axes, series in zip(panels, (*lines.allocated.values(), lines.fragmentation), strict=True):
                edge = np.linspace(series.edge_s[0], series.edge_s[-1], bins + 1)
                value = 100 * series.mean(edge[:-1], edge[1:])
                axes.step(edge[:-1] / 86400.0, value, where="post", label=label, **style)
        for axes, name in zip(panels, (*types, "fragmentation"), strict=True):
            axes.set_ylabel(f"{escape_dollar(name)}, %")
            axes.set_ylim(bottom=0)
            if name != "fragmentation":
                axes.set_ylim(0, 104)
            axes.margins(x=0)
            axes.xaxis.set_major_formatter("{x:,g}")
            axes.yaxis.set_major_formatter("{x:,g}")
        panels[-1].set_xlabel("day of the log")
        if panels[0].lines:
            columns = legend_columns(gpu_data.data, 3)
            legend_above(panels[0], columns, handlelength=2.6)
        figure.align_ylabels(list(panels))
    alt = "; ".join(
        f"{gpu_data.comparison.labels[policy]}: "
        + ", ".join(f"{row['type']} {share(row['utilization'])}" for row in rows if row["gpus"])
        for policy, rows in gpu_data.types.items()
    )
    return ReportFigure(
        figure,
        "Allocated GPUs by type, and fragmentation (GPUs that are free but unusable for the typical job), over time.",
        f"Allocated GPUs by type and fragmentation over time. While jobs arrive: {alt}.",
    )
