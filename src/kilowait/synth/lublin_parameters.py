"""Parameters of the Lublin-Feitelson model for one kind of job, and the published values.

U. Lublin and D. G. Feitelson, "The workload on parallel supercomputers: modeling the characteristics of rigid
jobs", Journal of Parallel and Distributed Computing 63 (11), 2003, pages 1105-1122. The values are those of
the authors' program, set for a machine of 128 nodes; its names are given in brackets.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from kilowait.errors import InputError


@dataclass(frozen=True, kw_only=True, slots=True)
class LublinParameters:
    """Parameters of one kind of job.

    >>> from dataclasses import replace
    >>> replace(COMBINED_PARAMETERS, name="all serial", serial_share=1.0, power2_share=0.0).serial_share
    1.0
    """

    name: str
    """Name of the kind, used as queue name."""

    serial_share: float
    """Share of jobs on one node [SERIAL_PROB]."""
    power2_share: float
    """Share of jobs on 2, 4, 8, ... nodes [POW2_PROB]."""
    size_low_log2: float
    """log2 of the smallest parallel size [ULOW]."""
    size_middle_gap_log2: float
    """Distance of the breakpoint of the size distribution below its maximum, log2 [UHI - UMED]."""
    size_high_gap_log2: float
    """Distance of its maximum below the machine's size, log2 [7 - UHI; the program's machine has 2^7 nodes]."""
    size_lower_share: float
    """Share of parallel jobs below the breakpoint [UPROB]."""

    short_shape: float
    """Gamma shape of the logarithm of short run times [A1]."""
    short_scale: float
    """Its scale, natural log of seconds [B1]."""
    long_shape: float
    """The same for long run times [A2]."""
    long_scale: float
    """Its scale [B2]."""
    short_share_per_node: float
    """Change of the share of short jobs with each node [PA]."""
    short_share_base: float
    """Share of short jobs at no nodes [PB]; the sum of both is kept within 0 and 1."""

    gap_shape: float
    """Gamma shape of the logarithm of the time between arrivals in rush hours [AARR]."""
    gap_scale: float
    """Its scale, natural log of seconds [BARR]."""
    gap_rush_ratio: float
    """Factor from that shape to the one for all hours [ARAR]."""
    cycle_shape: float
    """Gamma shape of the arrivals over the day [ANUM]."""
    cycle_scale: float
    """Its scale, half hours [BNUM]."""

    longest_runtime_log: float = 12.0
    """Natural log of the longest run time, seconds (45 h); longer ones are resampled [TOO_MUCH_TIME]."""
    longest_gap_log: float = 13.0
    """Natural log of the longest time between arrivals, seconds, 5 days [TOO_MUCH_ARRIVE_TIME]."""

    def __post_init__(self) -> None:
        if not self.name:
            raise InputError("a kind of job has no name; give it one, it is used as queue name")
        for item in fields(self):
            value = getattr(self, item.name)
            if item.name == "name":
                continue
            if not math.isfinite(value):
                raise InputError(f"{item.name} of kind {self.name!r} is {value}; it must be a finite number")
            if item.name.endswith("_share") and not 0 <= value <= 1:
                raise InputError(f"{item.name} of kind {self.name!r} is {value}; a share must be from 0 to 1")
            if item.name.endswith(("_shape", "_scale", "_ratio", "_log")) and value <= 0:
                raise InputError(f"{item.name} of kind {self.name!r} is {value}; it must be above 0")
            if item.name.endswith("_log2") and value < 0:
                raise InputError(f"{item.name} of kind {self.name!r} is {value}; it must be 0 or more")
        if self.serial_share + self.power2_share > 1:
            raise InputError(
                f"serial_share {self.serial_share} and power2_share {self.power2_share} of kind "
                f"{self.name!r} are more than 1 together; lower one of them"
            )


_PUBLISHED = {
    "serial_share": (0.2927, 0.1541, 0.244),
    "power2_share": (0.6686, 0.625, 0.576),
    "size_low_log2": (1.2, 1.0, 0.8),
    "size_middle_gap_log2": (2.0, 2.5, 2.5),
    "size_high_gap_log2": (0.0, 1.5, 0.0),
    "size_lower_share": (0.875, 0.705, 0.86),
    "short_shape": (6.57, 3.8351, 4.2),
    "short_scale": (0.823, 0.6605, 0.94),
    "long_shape": (639.1, 7.073, 312.0),
    "long_scale": (0.0156, 0.6856, 0.03),
    "short_share_per_node": (-0.003, -0.0118, -0.0054),
    "short_share_base": (0.6986, 0.9156, 0.78),
    "gap_shape": (6.0415, 6.5510, 10.2303),
    "gap_scale": (0.8531, 0.6621, 0.4871),
    "gap_rush_ratio": (1.0519, 0.9797, 1.0225),
    "cycle_shape": (6.1271, 8.9186, 8.1737),
    "cycle_scale": (5.2740, 3.6680, 3.9631),
}
"""Values of the batch jobs, the interactive jobs, and the fit to all jobs."""
BATCH_PARAMETERS, INTERACTIVE_PARAMETERS, COMBINED_PARAMETERS = (
    LublinParameters(name=name, **{field: values[column] for field, values in _PUBLISHED.items()})
    for column, name in enumerate(("batch", "interactive", "combined"))
)
"""Batch jobs; interactive jobs, the largest of which take about a third of the machine; and one kind for all jobs: the
authors' fit for logs without batch/interactive distinction."""

JOB_KINDS_BY_MODEL: dict[str, tuple[LublinParameters, ...]] = {
    "combined": (COMBINED_PARAMETERS,),
    "batch": (BATCH_PARAMETERS,),
    "interactive": (INTERACTIVE_PARAMETERS,),
    "mixed": (BATCH_PARAMETERS, INTERACTIVE_PARAMETERS),
}
"""Model names and their kinds of job."""
