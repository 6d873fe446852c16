"""Allocation by GPU type and fragmentation over time, of each policy that is drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from kilowait.cluster import Cluster
from kilowait.errors import InputError
from kilowait.evaluation import fragmentation, gpu_timeline
from kilowait.report.data.comparison import ComparisonData
from kilowait.series import Series

PANELS = 7
"""Maximum number of GPU types drawn over time; the smallest types are combined."""


@dataclass(frozen=True, eq=False)
class GpuSeries:
    """GPU allocation and fragmentation of one policy in the window that is drawn, as step functions from 0 to 1."""

    allocated: dict[str, Series]
    """Allocated share by GPU type, the most frequent type first."""
    fragmentation: Series


class GpuTimeline:
    """GPUs in use over time in the typical window of a comparison."""

    def __init__(self, data: ComparisonData, machine: Cluster) -> None:
        self.data, self.machine = data, machine

    @cached_property
    def _gpus_by_type(self) -> dict[str, int]:
        gpus: dict[str, int] = {}
        for group in self.machine.groups:
            if group.nodes * group.gpus:
                gpus[group.gpu_type] = gpus.get(group.gpu_type, 0) + group.nodes * group.gpus
        return gpus

    @cached_property
    def sizes(self) -> dict[str, int]:
        """Number of GPUs by drawn type, the most frequent first; the smallest types are combined."""
        ordered = dict(sorted(self._gpus_by_type.items(), key=lambda pair: -pair[1]))
        if len(ordered) <= PANELS:
            return ordered
        first = dict(list(ordered.items())[: PANELS - 1])
        return first | {f"{len(ordered) - len(first)} other types": sum(ordered.values()) - sum(first.values())}

    @cached_property
    def lines(self) -> dict[int, GpuSeries]:
        """Series of each policy that is drawn, except policies under which no job ran."""
        lines = {}
        for policy in self.data.shown:
            log = self.data.log(policy)
            try:
                used = gpu_timeline(log, self.machine)
            except InputError:  # no job ran for a positive time
                continue
            others = sorted(set(self._gpus_by_type) - set(self.sizes))
            allocated = {
                name: _share([used[each] for each in ([name] if name in self._gpus_by_type else others)], gpus)
                for name, gpus in self.sizes.items()
            }
            lines[policy] = GpuSeries(allocated, fragmentation(log, self.machine))
        return lines


def _share(parts: Sequence[Series], gpus: int) -> Series:
    """The sum of several series of GPUs in use, as a share of `gpus`."""
    if len(parts) == 1:
        return Series(parts[0].edge_s, parts[0].value / gpus)
    edge = sorted({float(edge) for part in parts for edge in part.edge_s})
    return Series(edge, sum(part.at(edge[:-1]) for part in parts) / gpus)  # type: ignore[arg-type]
