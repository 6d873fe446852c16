"""Sampling of power and energy of one machine into crash-safe files."""

from kilowait.telemetry.meters.cpu import CpuMeter
from kilowait.telemetry.meters.gpu import GpuMeter
from kilowait.telemetry.meters.sample_files import open_recorder
from kilowait.telemetry.meters.sampler import ClockReading, HostClock, Meter, SamplingProgress, sample, this_host

__all__ = [
    "HostClock",
    "CpuMeter",
    "GpuMeter",
    "Meter",
    "ClockReading",
    "SamplingProgress",
    "open_recorder",
    "sample",
    "this_host",
]
