"""Settings of sampling, of downloads of carbon intensity, and of the energy of jobs.

The module imports no NumPy: the command line takes its options from here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from kilowait.errors import InputError
from kilowait.settings import Argument, Option
from kilowait.units import parse_duration, short_duration

POWERCAP = Path("/sys/class/powercap")
"""Folder of the energy counters of processors."""


@dataclass(frozen=True)
class SamplingSettings:
    """Where and how long a meter is sampled."""

    out: Annotated[Path, Option("FILE", "FILE.csv, or the folder FILE.parquet; new samples are appended.", "-o")]
    interval_s: Annotated[
        float,
        Option(
            "SPAN", "Time between samples: 1s, 0.1s, 1m.", name="interval", parse=parse_duration, text=short_duration
        ),
    ] = 1.0
    duration_s: Annotated[
        float | None,
        Option(
            "SPAN",
            "How long to sample, e.g. 10m; by default until Ctrl-C or SIGTERM.",
            name="duration",
            parse=parse_duration,
        ),
    ] = None
    host: Annotated[str | None, Option("NAME", "Name of this node in Slurm; by default its host name.")] = None


@dataclass(frozen=True)
class CarbonRequest:
    """A download of carbon intensity."""

    service: Annotated[str, Argument("SERVICE", "gb (carbonintensity.org.uk), electricity-maps or watttime.")]
    out: Annotated[
        Path,
        Option(
            "FILE.json",
            "File of carbon intensity; in an existing file, new values are added and changed values replaced.",
            "-o",
        ),
    ]
    zone: Annotated[
        str | None, Option("ZONE", "electricity-maps: zone, e.g. DE; watttime: region of the grid, e.g. CAISO_NORTH.")
    ] = None
    region: Annotated[int | None, Option("ID", "gb: region, 1 to 17; by default the whole country.")] = None
    since: Annotated[str | None, Option("DATE", "First date (UTC); by default one day ago.")] = None
    until: Annotated[str | None, Option("DATE", "Last date (UTC); by default now.")] = None
    latest: Annotated[bool, Option(None, "Download only the current value.")] = False
    every_s: Annotated[
        float | None,
        Option("SPAN", "Repeat at this interval, e.g. 30m, until Ctrl-C.", name="every", parse=parse_duration),
    ] = None
    duration_s: Annotated[
        float | None, Option("SPAN", "With --every: how long to repeat.", name="duration", parse=parse_duration)
    ] = None
    carbon_scope: Annotated[str, Option("life-cycle|direct", "Which emissions to count, if the data contain both.")] = (
        "life-cycle"
    )
    token_file: Annotated[
        Path | None,
        Option(
            "FILE",
            "File with the Electricity Maps token, by default the environment variable ELECTRICITYMAPS_TOKEN; for "
            "watttime user name and password in two lines, by default WATTTIME_USER and WATTTIME_PASSWORD.",
        ),
    ] = None
    base_url: Annotated[str | None, Option("URL", "Other address of the service.")] = None
    timeout_s: Annotated[
        float, Option("SPAN", "Timeout of a request.", name="timeout", parse=parse_duration, text=short_duration)
    ] = 30.0
    cache: Annotated[Path | None, Option("DIR", "Cache folder for past values.")] = None


@dataclass(frozen=True)
class MockCarbonSettings:
    """The local server with the formats of the carbon-intensity services."""

    port: Annotated[int, Option("N", "TCP port of 127.0.0.1; 0: a free one.", min=0, max=65535)] = 0
    carbon: Annotated[
        Path | None,
        Option("FILE", "Signal file with the values to send, by their UTC times; by default a made-up daily curve."),
    ] = None
    duration_s: Annotated[
        float | None,
        Option("SPAN", "How long to serve, e.g. 10m; by default until Ctrl-C.", name="duration", parse=parse_duration),
    ] = None


@dataclass(frozen=True)
class EnergySplit:
    """How the energy of a node is split among the jobs that hold it at the same time."""

    nodes: Annotated[
        str,
        Option(
            "exclusive|shared",
            "Whether a node runs one job at a time, or jobs share it and its energy is split by their cores and GPUs.",
            "--node-sharing",
            name="share",
        ),
    ] = "exclusive"
    """exclusive: all energy belongs to the one job on the node; shared: split by cores, GPU energy by GPUs held."""
    idle: Annotated[
        str,
        Option(
            "jobs|nobody",
            "Shared nodes: assign the energy of idle cores to the running jobs, or to no job (nobody; needs "
            "--node-cores).",
            "--idle-energy",
        ),
    ] = "jobs"
    """Energy of free cores and GPUs while jobs run: "jobs" splits it among them, "nobody" leaves it unattributed."""
    node_cores: Annotated[int | None, Option("N", "Cores per node.")] = None
    """Cores of a node, for idle="nobody"."""
    node_gpus: Annotated[int | None, Option("N", "GPUs per node.")] = None
    """GPUs of a node, for idle="nobody"."""

    def __post_init__(self) -> None:
        for name, known in (("nodes", ("exclusive", "shared")), ("idle", ("jobs", "nobody"))):
            if getattr(self, name) not in known:
                raise InputError(f"{name} is {getattr(self, name)!r}; it must be {' or '.join(known)}")
        if self.idle == "nobody" and (self.nodes != "shared" or self.node_cores is None):
            raise InputError(
                "idle is 'nobody', which needs shared nodes of a known size; give --node-sharing shared and "
                "--node-cores (and --node-gpus)"
            )
        for name in ("node_cores", "node_gpus"):
            size = getattr(self, name)
            if size is not None and size < 1:
                raise InputError(f"{name} is {size}; it must be at least 1")


@dataclass(frozen=True)
class LabelSettings:
    """How the energy of jobs is computed from the samples of their nodes."""

    sharing: EnergySplit = field(default_factory=EnergySplit)
    coverage: Annotated[
        float,
        Option(
            "SHARE", "Minimum share of its run time that samples must cover for a job to be labelled.", "--min-coverage"
        ),
    ] = 0.9
    """Minimum share of a job's time that samples cover."""
    longest_gap_s: Annotated[
        float | None,
        Option(
            "SPAN",
            "Longest gap between samples that is interpolated; by default three sampling intervals.",
            name="longest_gap",
            parse=parse_duration,
        ),
    ] = None
    """Longest time between two samples that is bridged; None: three median steps."""
    zone: Annotated[
        str | None,
        Option("ZONE", "Time zone of a log whose times have none, e.g. Europe/Berlin.", "--timezone", name="timezone"),
    ] = None
    start: Annotated[
        str | None, Option("DATE", "Date of the first submission (UTC), for logs without dates.", name="log_start")
    ] = None

    def __post_init__(self) -> None:
        if not 0 < self.coverage <= 1:
            raise InputError(f"the coverage is {self.coverage:g}; it must be above 0 and at most 1, such as 0.9")
        if self.longest_gap_s is not None and not self.longest_gap_s > 0:
            raise InputError(f"the longest gap is {self.longest_gap_s:g} s; it must be above 0")
