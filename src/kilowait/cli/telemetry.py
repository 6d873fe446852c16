"""``kilowait telemetry``: measure GPU and CPU power, download carbon intensity, assign energy to jobs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kilowait.cli import console
from kilowait.cli.options import LOG_FORMAT, Json, verb
from kilowait.cli.terminal import stop_event
from kilowait.experiments.settings import LogFormat
from kilowait.settings import Argument, Option
from kilowait.telemetry.settings import POWERCAP, CarbonRequest, LabelSettings, MockCarbonSettings, SamplingSettings

if TYPE_CHECKING:
    from kilowait.telemetry.carbon import FetchResult
    from kilowait.telemetry.labels import LabelledJobs
    from kilowait.telemetry.meters import CpuMeter, GpuMeter
    from kilowait.telemetry.sampler import SamplingProgress

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
  kilowait telemetry carbon electricity-maps --zone DE --every 1h --out de.json
  kilowait telemetry carbon watttime --zone CAISO_NORTH --since 2026-03-01 --out california.json"""
_MOCK = """\b
Examples:
  kilowait telemetry mock-carbon --port 8080
  kilowait telemetry mock-carbon --carbon gb.json --duration 10m"""
_LABEL = """\b
Examples:
  kilowait telemetry label samples/*.parquet --job-log sacct.txt --out labelled.parquet
  kilowait telemetry label samples/* --job-log sacct.txt --node-sharing shared --timezone UTC --out labelled.parquet"""


# -- sampling --------------------------------------------------------------------------------------


@verb(app, epilog=_GPU)
def gpu(settings: SamplingSettings, json: Json = False) -> None:
    """Sample the NVIDIA GPUs of this machine: power, energy, utilization, memory, temperature, clock frequency.

    The file is readable however the command ends, SIGKILL included; the next run appends to it.
    """
    from kilowait.telemetry.meters import GpuMeter
    from kilowait.telemetry.sampler import this_host

    _sample(GpuMeter(settings.host or this_host()), settings, json)


@verb(app, epilog=_CPU)
def cpu(
    settings: SamplingSettings,
    root: Annotated[Path, Option("DIR", "Folder of the powercap counters.", "--powercap-root")] = POWERCAP,
    json: Json = False,
) -> None:
    """Sample the energy counters (RAPL) of the CPUs and memory of this machine. Most systems require root.

    The file is readable however the command ends, SIGKILL included; the next run appends to it.
    """
    from kilowait.telemetry.meters import CpuMeter
    from kilowait.telemetry.sampler import this_host

    meter = CpuMeter(settings.host or this_host(), root)
    if meter.unreadable:
        console.note(f"no permission to read {', '.join(meter.unreadable)}; these counters are left out")
    _sample(meter, settings, json)


def _sample(meter: GpuMeter | CpuMeter, settings: SamplingSettings, json: bool) -> None:
    from kilowait.telemetry.recorder import open_recorder
    from kilowait.telemetry.sampler import sample

    recorder = open_recorder(settings.out, meter.columns)
    with stop_event() as stop, console.status() as update:

        def report(state: SamplingProgress) -> None:
            for event in state.events:
                console.note(event)
            power = "" if state.power_w != state.power_w else f", {console.number(state.power_w)} W"
            update(f"{meter.host}{power}; {_counts(state)}; Ctrl-C stops")

        try:
            final = sample(
                meter,
                recorder,
                interval_s=settings.interval_s,
                duration_s=settings.duration_s,
                stop=stop,
                on_progress=report,
            )
        finally:
            recorder.close()
            meter.close()
    if json:
        counts = {name: getattr(final, name) for name in ("ticks", "rows", "missed", "clock_changes", "elapsed_s")}
        console.json_document({"host": meter.host, "out": settings.out, **counts})
        return
    print(f"{meter.host}: {meter.describe()}")
    print(f"{_counts(final)}; {console.count(final.rows, 'row')} written to {settings.out}")


def _counts(state: SamplingProgress) -> str:
    parts = [f"{console.count(state.ticks, 'tick')} in {console.span(state.elapsed_s)}"]
    parts += [f"{state.missed:,} missed"] if state.missed else []
    parts += (
        [f"the system clock was changed {console.count(state.clock_changes, 'time')}"] if state.clock_changes else []
    )
    return ", ".join(parts)


# -- carbon ----------------------------------------------------------------------------------------


@verb(app, epilog=_CARBON)
def carbon(request: CarbonRequest, json: Json = False) -> None:
    """Download the carbon intensity of electricity into a file for kilowait simulate --carbon FILE.

    Failed requests are repeated up to five times with growing delays, or as the service demands.
    """
    from kilowait.telemetry.carbon import client_for, fetch_carbon, requested_span
    from kilowait.telemetry.carbon_api import make_service

    service = make_service(
        request.service,
        zone=request.zone,
        region=request.region,
        carbon_scope=request.carbon_scope,
        base_url=request.base_url,
    )
    client = client_for(request, service, on_message=console.note)
    span = requested_span(
        request.since,
        request.until,
        client.now(),
        latest=request.latest,
        again=request.every_s is not None or request.duration_s is not None,
    )
    if request.every_s is not None:
        _follow(service, request, client, request.every_s)
        return
    with console.busy(f"downloading from {request.service} ..."):
        fetched = fetch_carbon(service, request.out, client, span_s=span, latest=request.latest)
    if json:
        console.json_document({"out": request.out, **vars(fetched)})
        return
    _show_carbon(request.out, fetched)


def _follow(service: Any, request: CarbonRequest, client: Any, every_s: float) -> None:
    import time

    from kilowait.errors import KilowaitError
    from kilowait.telemetry.carbon import follow_carbon

    with stop_event() as stop, console.status() as update:

        def wait(seconds: float) -> None:
            if stop.wait(seconds):
                raise KeyboardInterrupt

        def report(result: FetchResult | KilowaitError) -> None:
            if isinstance(result, KilowaitError):
                console.note(str(result))
            else:
                update(f"{service.location()}: {console.count(result.values, 'value')} in {request.out}; Ctrl-C stops")

        client.wait = wait
        follow_carbon(
            service,
            request.out,
            client,
            every_s=every_s,
            duration_s=request.duration_s,
            stop=stop,
            monotonic=time.monotonic,
            on_result=report,
        )
    print(f"{service.location()}: written to {request.out}")


def _show_carbon(out: Path, fetched: FetchResult) -> None:
    from kilowait.energy.signals import read_carbon
    from kilowait.errors import InputError

    try:
        print(read_carbon(out).describe())
    except InputError as problem:  # The data of the service have gaps; the file is correct, and its reader must decide.
        console.note(str(problem))
    changed = f", {fetched.changed:,} replaced" if fetched.changed else ""
    print(f"{console.count(fetched.values, 'value')} in {out}: {fetched.added:,} new{changed}")


@verb(app, epilog=_MOCK)
def mock_carbon(settings: MockCarbonSettings) -> None:
    """Serve the formats of the carbon-intensity services on this machine (127.0.0.1), without real services.

    Give its address to kilowait telemetry carbon as the address of the service, to try downloads without a network, a
    token or an account. Electricity Maps accepts any token, and WattTime any user name and password.
    """
    import time

    from kilowait.telemetry.mock_carbon import Intensity, daily_curve, intensity_of, serve_mock_carbon

    intensity: Intensity = daily_curve
    if settings.carbon is not None:
        from kilowait.energy.signals import read_carbon

        intensity = intensity_of(read_carbon(settings.carbon))
    with stop_event() as stop, serve_mock_carbon(intensity, time.time, settings.port) as url:
        print(f"mock services at {url}: gb, electricity-maps, watttime", flush=True)
        print(f"kilowait telemetry carbon gb --base-url {url} --out gb.json", flush=True)
        stop.wait(settings.duration_s)


# -- labels ----------------------------------------------------------------------------------------


@verb(
    app,
    f"samples jobs out share idle node_cores node_gpus coverage longest_gap timezone log_start {LOG_FORMAT} force json",
    epilog=_LABEL,
)
def label(
    samples: Annotated[
        list[Path], Argument("SAMPLES...", "Files and folders written by kilowait telemetry gpu and cpu.")
    ],
    jobs: Annotated[str, Option("TRACE", "Job log with start times.", "--job-log")],
    out: Annotated[Path, Option("FILE", "Log with energy to write: .parquet or .csv.", "-o")],
    settings: LabelSettings,
    log_format: LogFormat,
    force: Annotated[bool, Option(None, "Replace FILE if it exists.")] = False,
    json: Json = False,
) -> None:
    """Assign to each job the energy that its nodes' meters measured between its start and end.

    Writes the log with the columns energy_j and power_w. Jobs that the samples do not cover get no label and are
    counted with the reason; assigned and unassigned energy add up to the measured energy.
    """
    from kilowait.errors import InputError
    from kilowait.experiments.scenario_inputs import read_workload
    from kilowait.telemetry.labels import label_energy
    from kilowait.telemetry.sample_reader import SampleFiles
    from kilowait.traces import write_trace

    if out.exists() and not force:
        raise InputError(f"{out} exists and is not changed; choose another --out, or add --force")
    with console.status() as update:
        update(f"reading {jobs} ...")
        log = read_workload(jobs, **vars(log_format)).jobs
        update(f"reading {console.count(len(samples), 'file')} of samples ...")
        labelled = label_energy(
            log, SampleFiles(samples), settings, on_progress=lambda host: update(f"labelling the jobs of {host} ...")
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
