"""``kilowait telemetry``: measure GPU and CPU power, download carbon intensity, assign energy to jobs."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kilowait.cli import console, options
from kilowait.cli import option_groups as groups

if TYPE_CHECKING:
    from kilowait.telemetry.carbon import FetchResult
    from kilowait.telemetry.labels import LabelledJobs
    from kilowait.telemetry.meters import CpuMeter, GpuMeter, SamplingProgress

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Measure GPU and CPU power, download carbon intensity, assign measured energy to jobs.",
    **console.PLAIN,
)

_GPU = """\b
Examples:
  kilowait telemetry gpu --out samples/$(hostname -s).parquet
  kilowait telemetry gpu --interval 0.1s --duration 10m --out run.csv"""
_CPU = """\b
Example:
  kilowait telemetry cpu --out samples/$(hostname -s)-cpu.parquet"""
_CARBON = """\b
Examples:
  kilowait telemetry carbon gb --out gb.json
  kilowait telemetry carbon gb --since 2026-01-01 --until 2026-03-01 --out gb.json
  kilowait telemetry carbon electricity-maps --zone DE --every 1h --out de.json"""
_LABEL = """\b
Examples:
  kilowait telemetry label samples/*.parquet --job-log sacct.txt --out labelled.parquet
  kilowait telemetry label samples/* --job-log sacct.txt --node-sharing shared --timezone UTC --out labelled.parquet"""

Samples = Annotated[
    Path,
    typer.Option("--out", "-o", metavar="FILE", help="FILE.csv, or the folder FILE.parquet; new samples are appended."),
]
Interval = Annotated[str, typer.Option("--interval", metavar="SPAN", help="Time between samples: 1s, 0.1s, 1m.")]
Duration = Annotated[
    str | None,
    typer.Option(
        "--duration",
        metavar="SPAN",
        help="How long to sample, e.g. 10m; by default until Ctrl-C or SIGTERM.",
        show_default=False,
    ),
]
Host = Annotated[
    str | None,
    typer.Option(
        "--host", metavar="NAME", help="Name of this node in Slurm; by default its host name.", show_default=False
    ),
]


# -- sampling --------------------------------------------------------------------------------------


@app.command(epilog=_GPU)
def gpu(
    out: Samples, interval: Interval = "1s", duration: Duration = None, host: Host = None, json: options.Json = False
) -> None:
    """Sample the NVIDIA GPUs of this machine: power, energy, utilization, memory, temperature, clock frequency.

    The file is readable however the command ends, SIGKILL included; the next run appends to it.
    """
    from kilowait.telemetry.meters import GpuMeter, this_host

    _sample_to(GpuMeter(host or this_host()), out, interval, duration, json)


@app.command(epilog=_CPU)
def cpu(
    out: Samples,
    interval: Interval = "1s",
    duration: Duration = None,
    host: Host = None,
    root: Annotated[
        Path, typer.Option("--powercap-root", metavar="DIR", help="Folder of the powercap counters.")
    ] = Path("/sys/class/powercap"),
    json: options.Json = False,
) -> None:
    """Sample the energy counters (RAPL) of the CPUs and memory of this machine. Most systems require root.

    The file is readable however the command ends, SIGKILL included; the next run appends to it.
    """
    from kilowait.telemetry.meters import CpuMeter, this_host

    meter = CpuMeter(host or this_host(), root)
    if meter.unreadable:
        console.note(f"no permission to read {', '.join(meter.unreadable)}; these counters are left out")
    _sample_to(meter, out, interval, duration, json)


def _sample_to(meter: GpuMeter | CpuMeter, out: Path, interval: str, duration: str | None, json: bool) -> None:
    from kilowait.telemetry.meters import open_recorder, sample
    from kilowait.units import parse_duration

    every_s, for_s = parse_duration(interval), None if duration is None else parse_duration(duration)
    recorder = open_recorder(out, meter.columns)
    with _stopping() as stop, console.status() as update:

        def report(state: SamplingProgress) -> None:
            for event in state.events:
                console.note(event)
            power = "" if state.power_w != state.power_w else f", {console.number(state.power_w)} W"
            update(f"{meter.host}{power}; {_counts(state)}; Ctrl-C stops")

        try:
            final = sample(meter, recorder, interval_s=every_s, duration_s=for_s, stop=stop, on_progress=report)
        finally:
            recorder.close()
            meter.close()
    if json:
        counts = {name: getattr(final, name) for name in ("ticks", "rows", "missed", "clock_changes", "elapsed_s")}
        console.json_document({"host": meter.host, "out": out, **counts})
        return
    print(f"{meter.host}: {meter.describe()}")
    print(f"{_counts(final)}; {console.count(final.rows, 'row')} written to {out}")


def _counts(state: SamplingProgress) -> str:
    parts = [f"{console.count(state.ticks, 'tick')} in {console.span(state.elapsed_s)}"]
    parts += [f"{state.missed:,} missed"] if state.missed else []
    parts += (
        [f"the system clock was changed {console.count(state.clock_changes, 'time')}"] if state.clock_changes else []
    )
    return ", ".join(parts)


@contextmanager
def _stopping() -> Iterator[threading.Event]:
    """An event that Ctrl-C and SIGTERM set; a second Ctrl-C interrupts."""
    stop = threading.Event()

    def stopped(number: int, frame: Any) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    before = {number: signal.signal(number, stopped) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


# -- carbon ----------------------------------------------------------------------------------------


@app.command(epilog=_CARBON)
def carbon(
    service: Annotated[str, typer.Argument(metavar="SERVICE", help="gb (carbonintensity.org.uk) or electricity-maps.")],
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE.json",
            help="File of carbon intensity; in an existing file, new values are added and changed values replaced.",
        ),
    ],
    zone: Annotated[
        str | None, typer.Option("--zone", metavar="ZONE", help="electricity-maps: zone, e.g. DE.", show_default=False)
    ] = None,
    region: Annotated[
        int | None,
        typer.Option(
            "--region", metavar="ID", help="gb: region, 1 to 17; by default the whole country.", show_default=False
        ),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="DATE", help="First date (UTC); by default one day ago.", show_default=False),
    ] = None,
    until: Annotated[
        str | None, typer.Option("--until", metavar="DATE", help="Last date (UTC); by default now.", show_default=False)
    ] = None,
    latest: Annotated[bool, typer.Option("--latest", help="Download only the current value.")] = False,
    every: Annotated[
        str | None,
        typer.Option(
            "--every", metavar="SPAN", help="Repeat at this interval, e.g. 30m, until Ctrl-C.", show_default=False
        ),
    ] = None,
    duration: Annotated[
        str | None,
        typer.Option("--duration", metavar="SPAN", help="With --every: how long to repeat.", show_default=False),
    ] = None,
    carbon_scope: options.CarbonScope = "life-cycle",
    token_file: Annotated[
        Path | None,
        typer.Option(
            "--token-file",
            metavar="FILE",
            help="File with the Electricity Maps token; by default the environment variable ELECTRICITYMAPS_TOKEN.",
            show_default=False,
        ),
    ] = None,
    base_url: Annotated[
        str | None, typer.Option("--base-url", metavar="URL", help="Other address of the service.", show_default=False)
    ] = None,
    timeout: Annotated[str, typer.Option("--timeout", metavar="SPAN", help="Timeout of a request.")] = "30s",
    cache: Annotated[
        Path | None, typer.Option("--cache", metavar="DIR", help="Cache folder for past values.", show_default=False)
    ] = None,
    json: options.Json = False,
) -> None:
    """Download the carbon intensity of electricity into a file for kilowait simulate --carbon FILE.

    Failed requests are repeated up to five times with growing delays, or as the service demands.
    """
    from kilowait.telemetry.carbon import HttpClient, default_cache, fetch_carbon, make_service, read_token
    from kilowait.telemetry.carbon.fetch import requested_span
    from kilowait.units import parse_duration

    source = make_service(service, zone=zone, region=region, carbon_scope=carbon_scope, base_url=base_url)
    client = HttpClient(
        timeout_s=parse_duration(timeout),
        cache=cache or default_cache(),
        token=read_token(token_file) if service == "electricity-maps" else None,
        on_message=console.note,
    )
    span = requested_span(since, until, client.now(), latest=latest, again=every is not None or duration is not None)
    if every is not None:
        _follow(source, out, client, parse_duration(every), None if duration is None else parse_duration(duration))
        return
    with console.busy(f"downloading from {service} ..."):
        fetched = fetch_carbon(source, out, client, span_s=span, latest=latest)
    if json:
        console.json_document({"out": out, **vars(fetched)})
        return
    _show_carbon(out, fetched)


def _follow(source: Any, out: Path, client: Any, every_s: float, duration_s: float | None) -> None:
    import time

    from kilowait.errors import KilowaitError
    from kilowait.telemetry.carbon import follow_carbon

    with _stopping() as stop, console.status() as update:

        def wait(seconds: float) -> None:
            if stop.wait(seconds):
                raise KeyboardInterrupt

        def report(result: FetchResult | KilowaitError) -> None:
            if isinstance(result, KilowaitError):
                console.note(str(result))
            else:
                update(f"{source.location()}: {console.count(result.values, 'value')} in {out}; Ctrl-C stops")

        client.wait = wait
        follow_carbon(
            source,
            out,
            client,
            every_s=every_s,
            duration_s=duration_s,
            stop=stop,
            monotonic=time.monotonic,
            on_result=report,
        )
    print(f"{source.location()}: written to {out}")


def _show_carbon(out: Path, fetched: FetchResult) -> None:
    from kilowait.energy.signals import read_carbon
    from kilowait.errors import InputError

    try:
        print(read_carbon(out).describe())
    except InputError as problem:  # The data of the service have gaps; the file is correct, and its reader must decide.
        console.note(str(problem))
    changed = f", {fetched.changed:,} replaced" if fetched.changed else ""
    print(f"{console.count(fetched.values, 'value')} in {out}: {fetched.added:,} new{changed}")


# -- labels ----------------------------------------------------------------------------------------


@app.command(epilog=_LABEL)
@groups.with_groups
def label(
    *,
    samples: Annotated[
        list[Path],
        typer.Argument(metavar="SAMPLES...", help="Files and folders written by kilowait telemetry gpu and cpu."),
    ],
    jobs: Annotated[str, typer.Option("--job-log", metavar="TRACE", help="Job log with start times.")],
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="FILE", help="Log with energy to write: .parquet or .csv.")
    ],
    share: Annotated[
        str,
        typer.Option(
            "--node-sharing",
            metavar="exclusive|shared",
            help="Whether a node runs one job at a time, or jobs share it and its energy is split by their cores and "
            "GPUs.",
        ),
    ] = "exclusive",
    idle: Annotated[
        str,
        typer.Option(
            "--idle-energy",
            metavar="jobs|nobody",
            help="Shared nodes: assign the energy of idle cores to the running jobs, or to no job (nobody; needs "
            "--node-cores).",
        ),
    ] = "jobs",
    node_cores: Annotated[
        int | None, typer.Option("--node-cores", metavar="N", help="Cores per node.", show_default=False)
    ] = None,
    node_gpus: Annotated[
        int | None, typer.Option("--node-gpus", metavar="N", help="GPUs per node.", show_default=False)
    ] = None,
    coverage: Annotated[
        float,
        typer.Option(
            "--min-coverage",
            metavar="SHARE",
            help="Minimum share of its run time that samples must cover for a job to be labelled.",
        ),
    ] = 0.9,
    longest_gap: Annotated[
        str | None,
        typer.Option(
            "--longest-gap",
            metavar="SPAN",
            help="Longest gap between samples that is interpolated; by default three sampling intervals.",
            show_default=False,
        ),
    ] = None,
    timezone: Annotated[
        str | None,
        typer.Option(
            "--timezone",
            metavar="ZONE",
            help="Time zone of a log whose times have none, e.g. Europe/Berlin.",
            show_default=False,
        ),
    ] = None,
    log_start: options.LogStart = None,
    log_format: groups.LogFormatOptions,
    force: Annotated[bool, typer.Option("--force", help="Replace FILE if it exists.")] = False,
    json: options.Json = False,
) -> None:
    """Assign to each job the energy that its nodes' meters measured between its start and end.

    Writes the log with the columns energy_j and power_w. Jobs that the samples do not cover get no label and are
    counted with the reason; assigned and unassigned energy add up to the measured energy.
    """
    from kilowait.errors import InputError
    from kilowait.experiments.scenario_inputs import read_workload
    from kilowait.telemetry.labels import EnergySplit, SampleFiles, label_energy
    from kilowait.traces import write_trace
    from kilowait.units import parse_duration

    if out.exists() and not force:
        raise InputError(f"{out} exists and is not changed; choose another --out, or add --force")
    sharing = EnergySplit(share, idle, node_cores, node_gpus)
    with console.status() as update:
        update(f"reading {jobs} ...")
        log = read_workload(jobs, **vars(log_format)).jobs
        update(f"reading {console.count(len(samples), 'file')} of samples ...")
        labelled = label_energy(
            log,
            SampleFiles(samples),
            sharing=sharing,
            coverage=coverage,
            longest_gap_s=None if longest_gap is None else parse_duration(longest_gap),
            zone=timezone,
            start=log_start,
            on_progress=lambda host: update(f"labelling the jobs of {host} ..."),
        )
        write_trace(labelled.jobs, out)
    for note in labelled.notes:
        console.note(note)
    if json:
        console.json_document({"out": out, **labelled.to_dict()})
        return
    _show_labels(labelled)
    print(f"\nwritten to {out}")


def _show_labels(labelled: LabelledJobs) -> None:
    result = labelled.to_dict()

    def kwh(joules: float) -> str:
        share = f" ({console.percent(joules / result['node_j'])})" if result["node_j"] > 0 else ""
        return f"{console.number(joules / 3.6e6)} kWh{share}"

    console.facts(
        [
            ("jobs", f"{result['jobs']:,}, {result['labelled']:,} of them labelled"),
            *(("not labelled", f"{count:,}: {reason}") for reason, count in result["unlabelled"].items()),
            ("measured", f"{console.number(result['node_j'] / 3.6e6)} kWh"),
            ("labelled jobs", kwh(result["labelled_j"])),
            ("other jobs", kwh(result["unlabelled_j"])),
            ("no job", kwh(result["unattributed_j"])),
            ("not measured", f"{console.number(result['extrapolated_j'] / 3.6e6)} kWh added where samples have gaps"),
        ]
    )
