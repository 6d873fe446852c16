"""``kilowait telemetry``: sample GPUs and processors, ask for carbon intensity, label jobs with their energy."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kilowait.cli import console, options

if TYPE_CHECKING:
    from kilowait.telemetry.carbon import FetchResult
    from kilowait.telemetry.labels import LabelledJobs
    from kilowait.telemetry.meters import CpuMeter, GpuMeter, SamplingProgress

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Meters: power of GPUs and processors, carbon intensity of the grid; and the energy of jobs from both.",
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
  kilowait telemetry carbon gb --from 2026-01-01 --to 2026-03-01 --out gb.json
  kilowait telemetry carbon electricity-maps --zone DE --every 1h --out de.json"""
_LABEL = """\b
Examples:
  kilowait telemetry label samples/*.parquet --jobs sacct.txt --out labelled.parquet
  kilowait telemetry label samples/* --jobs sacct.txt --share shared --zone Europe/Berlin --out labelled.parquet"""

Samples = Annotated[
    Path, typer.Option("--out", "-o", metavar="FILE", help="FILE.csv, or FILE.parquet: a folder; added to.")
]
Interval = Annotated[str, typer.Option(metavar="SPAN", help="Time between samples: 1s, 0.1s, 1m.")]
Duration = Annotated[
    str | None,
    typer.Option(
        metavar="SPAN", help="How long, e.g. 10m; else until Ctrl-C or SIGTERM.", show_default=False
    ),
]
Host = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", help="This machine's name, as Slurm calls it; else its own.", show_default=False
    ),
]


# -- sampling --------------------------------------------------------------------------------------


@app.command(epilog=_GPU)
def gpu(
    out: Samples,
    interval: Interval = "1s",
    duration: Duration = None,
    host: Host = None,
    json: options.Json = False,
) -> None:
    """Sample the NVIDIA GPUs of this machine: power, energy, load, memory, temperature, clock of each.

    Whatever ends it, a SIGKILL included, what was sampled can be read; the next run adds to it.
    """
    from kilowait.telemetry.meters import GpuMeter, this_host

    _sampled(GpuMeter(host or this_host()), out, interval, duration, json)


@app.command(epilog=_CPU)
def cpu(
    out: Samples,
    interval: Interval = "1s",
    duration: Duration = None,
    host: Host = None,
    root: Annotated[Path, typer.Option(metavar="DIR", help="Where Linux shows the counters.")] = Path(
        "/sys/class/powercap"
    ),
    json: options.Json = False,
) -> None:
    """Sample the energy counters (RAPL) of this machine's processors and memory. On most systems root's alone.

    Whatever ends it, a SIGKILL included, what was sampled can be read; the next run adds to it.
    """
    from kilowait.telemetry.meters import CpuMeter, this_host

    meter = CpuMeter(host or this_host(), root)
    if meter.barred:
        console.note(f"no permission to read {', '.join(meter.barred)}: left out")
    _sampled(meter, out, interval, duration, json)


def _sampled(meter: GpuMeter | CpuMeter, out: Path, interval: str, duration: str | None, json: bool) -> None:
    from kilowait.telemetry.meters import open_recorder, sample
    from kilowait.units import parse_span

    every_s, for_s = parse_span(interval), None if duration is None else parse_span(duration)
    recorder = open_recorder(out, meter.columns)
    with _stopping() as stop, console.status() as tell:

        def heard(now: SamplingProgress) -> None:
            for event in now.events:
                console.note(event)
            power = "" if now.power_w != now.power_w else f", {console.number(now.power_w)} W"
            tell(f"{meter.host}{power}; {_counted(now)}; Ctrl-C ends it")

        try:
            told = sample(meter, recorder, interval_s=every_s, duration_s=for_s, stop=stop, heard=heard)
        finally:
            recorder.close()
            meter.close()
    if json:
        counts = {name: getattr(told, name) for name in ("ticks", "rows", "missed", "jumps", "elapsed_s")}
        console.json_document({"host": meter.host, "out": out, **counts})
        return
    print(f"{meter.host}: {meter.describe()}")
    print(f"{_counted(told)}; {console.count(told.rows, 'row')} written to {out}")


def _counted(told: SamplingProgress) -> str:
    parts = [f"{console.count(told.ticks, 'tick')} in {console.span(told.elapsed_s)}"]
    parts += [f"{told.missed:,} missed"] if told.missed else []
    parts += [f"the clock was set {console.count(told.jumps, 'time')}"] if told.jumps else []
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
    service: Annotated[str, typer.Argument(metavar="SERVICE", help="gb, or electricity-maps.")],
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="FILE.json", help="File for --carbon; added to.")
    ],
    zone: Annotated[
        str | None, typer.Option(metavar="Z", help="Electricity Maps: the zone, e.g. DE.", show_default=False)
    ] = None,
    region: Annotated[
        int | None,
        typer.Option(metavar="N", help="gb: a region, 1 to 17; else the country.", show_default=False),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            "--from", metavar="DATE", help="From then on (UTC); else the last day.", show_default=False
        ),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option("--to", metavar="DATE", help="Until then; else until now.", show_default=False),
    ] = None,
    latest: Annotated[bool, typer.Option("--latest", help="Only what holds now.")] = False,
    every: Annotated[
        str | None,
        typer.Option(metavar="SPAN", help="Ask again and again, e.g. 30m, until Ctrl-C.", show_default=False),
    ] = None,
    duration: Annotated[
        str | None, typer.Option(metavar="SPAN", help="How long to ask again.", show_default=False)
    ] = None,
    scope: options.Scope = "life-cycle",
    token_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="With the token of Electricity Maps; else ELECTRICITYMAPS_TOKEN of the environment has it.",
            show_default=False,
        ),
    ] = None,
    base_url: Annotated[
        str | None, typer.Option(metavar="URL", help="Another address of the service.", show_default=False)
    ] = None,
    timeout: Annotated[str, typer.Option(metavar="SPAN", help="How long it may keep silent.")] = "30s",
    cache: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where answers about the past are kept.", show_default=False),
    ] = None,
    json: options.Json = False,
) -> None:
    """Ask a service for the carbon intensity of electricity and add it to a file that --carbon reads.

    Trouble on the way is met with patience: five tries, longer and longer apart, or as the service asks.
    """
    from kilowait.telemetry.carbon import HttpClient, default_cache, fetch_carbon, service_of, token_from
    from kilowait.telemetry.carbon.fetch import span_asked
    from kilowait.units import parse_span

    place = service_of(service, zone=zone, region=region, scope=scope, base_url=base_url)
    asking = HttpClient(
        timeout_s=parse_span(timeout),
        cache=cache or default_cache(),
        token=token_from(token_file) if service == "electricity-maps" else None,
        on_message=console.note,
    )
    span = span_asked(
        since, until, asking.now(), latest=latest, again=every is not None or duration is not None
    )
    if every is not None:
        _followed(place, out, asking, parse_span(every), None if duration is None else parse_span(duration))
        return
    with console.busy(f"asking {service} ..."):
        fetched = fetch_carbon(place, out, asking, span_s=span, latest=latest)
    if json:
        console.json_document({"out": out, **vars(fetched)})
        return
    _show_carbon(out, fetched)


def _followed(place: Any, out: Path, asking: Any, every_s: float, duration_s: float | None) -> None:
    import time

    from kilowait.errors import KilowaitError
    from kilowait.telemetry.carbon import follow_carbon

    with _stopping() as stop, console.status() as tell:

        def patient(seconds: float) -> None:
            if stop.wait(seconds):
                raise KeyboardInterrupt

        def heard(what: FetchResult | KilowaitError) -> None:
            if isinstance(what, KilowaitError):
                console.note(str(what))
            else:
                tell(f"{place.place()}: {console.count(what.values, 'value')} in {out}; Ctrl-C ends it")

        asking.wait = patient
        follow_carbon(
            place,
            out,
            asking,
            every_s=every_s,
            duration_s=duration_s,
            stop=stop,
            monotonic=time.monotonic,
            heard=heard,
        )
    print(f"{place.place()}: written to {out}")


def _show_carbon(out: Path, fetched: FetchResult) -> None:
    from kilowait.energy.signals import read_carbon
    from kilowait.errors import InputError

    try:
        print(read_carbon(out).describe())
    except (
        InputError
    ) as problem:  # The service has holes: the file is right, and whoever reads it must decide.
        console.note(str(problem))
    changed = f", {fetched.changed:,} replaced" if fetched.changed else ""
    print(f"{console.count(fetched.values, 'value')} in {out}: {fetched.added:,} new{changed}")


# -- labels ----------------------------------------------------------------------------------------


@app.command(epilog=_LABEL)
def label(
    samples: Annotated[
        list[Path], typer.Argument(metavar="SAMPLES...", help="Files and folders that were sampled.")
    ],
    jobs: Annotated[str, typer.Option("--jobs", metavar="TRACE", help="The job log, with recorded starts.")],
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="FILE", help="The labelled log: .parquet or .csv.")
    ],
    share: Annotated[
        str,
        typer.Option(
            metavar="exclusive|shared",
            help="Nodes are one job's at a time, or divided by cores and GPUs held.",
        ),
    ] = "exclusive",
    idle: Annotated[
        str,
        typer.Option(
            metavar="jobs|nobody",
            help="Shared nodes: what idle cores draw is the running jobs', or nobody's (needs --node-cores).",
        ),
    ] = "jobs",
    node_cores: Annotated[
        int | None, typer.Option(metavar="N", help="Cores of a node.", show_default=False)
    ] = None,
    node_gpus: Annotated[
        int | None, typer.Option(metavar="N", help="GPUs of a node.", show_default=False)
    ] = None,
    coverage: Annotated[
        float,
        typer.Option(metavar="SHARE", help="Of its time that samples must cover for a job to be labelled."),
    ] = 0.9,
    longest_gap: Annotated[
        str | None,
        typer.Option(
            metavar="SPAN",
            help="Between two samples, to be bridged; else three usual steps.",
            show_default=False,
        ),
    ] = None,
    zone: Annotated[
        str | None,
        typer.Option(
            metavar="Z", help="Of a log whose times have none, e.g. Europe/Berlin.", show_default=False
        ),
    ] = None,
    start: options.Start = None,
    columns: options.Columns = None,
    format: options.Format = None,
    strict: options.Strict = False,
    force: Annotated[bool, typer.Option("--force", help="Replace FILE if it is there.")] = False,
    json: options.Json = False,
) -> None:
    """Give jobs the energy that the meters of their nodes counted between their start and end.

    Writes the log with energy_j and power_w. Jobs that samples do not cover get no label and are counted with the
    reason; the joules of jobs and of nobody add up to what was measured.
    """
    from kilowait.errors import InputError
    from kilowait.experiments.inputs import workload_of
    from kilowait.telemetry.labels import SampleFiles, Sharing, label_energy
    from kilowait.traces import write_trace
    from kilowait.units import parse_span

    if out.exists() and not force:
        raise InputError(f"{out} is there already; it is not touched: give another --out, or --force")
    sharing = Sharing(share, idle, node_cores, node_gpus)
    with console.status() as tell:
        tell(f"reading {jobs} ...")
        log = workload_of(jobs, format=format, columns=columns, strict=strict).jobs
        tell(f"reading {console.count(len(samples), 'file')} of samples ...")
        found = label_energy(
            log,
            SampleFiles(samples),
            sharing=sharing,
            coverage=coverage,
            longest_gap_s=None if longest_gap is None else parse_span(longest_gap),
            zone=zone,
            start=start,
            heard=lambda host: tell(f"labelling the jobs of {host} ..."),
        )
        write_trace(found.jobs, out)
    for note in found.notes:
        console.note(note)
    if json:
        console.json_document({"out": out, **found.to_dict()})
        return
    _show_labels(found)
    print(f"\nwritten to {out}")


def _show_labels(found: LabelledJobs) -> None:
    told = found.to_dict()

    def kwh(joules: float) -> str:
        share = f" ({console.percent(joules / told['node_j'])})" if told["node_j"] > 0 else ""
        return f"{console.number(joules / 3.6e6)} kWh{share}"

    console.facts(
        [
            ("jobs", f"{told['jobs']:,}, {told['labelled']:,} of them labelled"),
            *(("without", f"{count:,}: {reason}") for reason, count in told["unlabelled"].items()),
            ("measured", f"{console.number(told['node_j'] / 3.6e6)} kWh"),
            ("of labelled jobs", kwh(told["labelled_j"])),
            ("of other jobs", kwh(told["unlabelled_j"])),
            ("of nobody", kwh(told["unattributed_j"])),
            (
                "not measured",
                f"{console.number(told['extrapolated_j'] / 3.6e6)} kWh added where samples have gaps",
            ),
        ]
    )
