"""Power and energy of one machine, sampled into files that survive any stop."""

from kilowait.telemetry.meters.cpu import CpuMeter
from kilowait.telemetry.meters.gpu import GpuMeter
from kilowait.telemetry.meters.host_clock import Clock, Moment
from kilowait.telemetry.meters.sample_files import open_recorder
from kilowait.telemetry.meters.sampler import (
    Meter,
    Sampled,
    sample,
    this_host,
)

__all__ = [
    "Clock",
    "CpuMeter",
    "GpuMeter",
    "Meter",
    "Moment",
    "Sampled",
    "open_recorder",
    "sample",
    "this_host",
]
