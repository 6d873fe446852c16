"""Slurm's job logs: sacct accounting dumps and events of the Slurm simulator."""

from kilowait.traces.slurm.sacct import read_sacct
from kilowait.traces.slurm.sacct_records import sacct_delimiter
from kilowait.traces.slurm.simulator_events import read_events

__all__ = ["read_events", "read_sacct", "sacct_delimiter"]
