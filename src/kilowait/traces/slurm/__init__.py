"""Slurm's job logs: dumps of the accounting and the events of the Slurm simulator."""

from kilowait.traces.slurm.events import read_events
from kilowait.traces.slurm.records import sacct_delimiter
from kilowait.traces.slurm.sacct import read_sacct

__all__ = ["read_events", "read_sacct", "sacct_delimiter"]
