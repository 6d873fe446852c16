"""``kilowait bench``: measure the speed of kilowait on this machine."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kilowait.cli import console, options

if TYPE_CHECKING:
    from kilowait.experiments.bench import BenchResult

app = typer.Typer(add_completion=False, **console.PLAIN)

_EPILOG = """\b
Examples:
  kilowait bench --quick
  kilowait bench --data ../shared/data --json
  kilowait bench env
  kilowait bench latency --out latency.png
  kilowait bench train --device cuda --num-envs 4096
  kilowait bench predict"""


@app.callback(invoke_without_command=True, epilog=_EPILOG)
def bench(
    context: typer.Context,
    quick: Annotated[
        bool, typer.Option("--quick", help="Run only the benchmarks that take less than half a minute in total.")
    ] = False,
    data: Annotated[
        Path | None,
        typer.Option(
            "--data",
            metavar="DIR",
            help="Folder of real logs, with a subfolder swf/; by default the environment variable KILOWAIT_DATA.",
        ),
    ] = None,
    json: options.Json = False,
) -> None:
    """Measure simulated jobs per second and start-up times on one core, and compare them with targets.

    The workload has 10,000 jobs on 256 nodes (Lublin-Feitelson model); real logs are used if available. The machine
    should be idle. Without a subcommand the simulator is measured.
    """
    if context.invoked_subcommand is not None:
        return
    from kilowait.experiments.bench import run_benchmarks

    machine = _machine()
    if not json:
        print(f"Python {machine['python']} on {machine['cpus']} cores, load {machine['load']:.2f} at the start\n")
        print(f"{'':<48}{'measured':>12}  {'':<7}{'target':>12}")
    results = []
    remaining = run_benchmarks(quick=quick, data=data)
    while True:
        with console.busy("measuring ..."):
            measure = next(remaining, None)
        if measure is None:
            break
        results.append(measure)
        if not json:
            _show(measure)
    if json:
        console.json_document({"machine": machine, "measures": [measure.to_dict() for measure in results]})
        return
    checked = [measure.met for measure in results if measure.met is not None]
    print(f"\n{sum(checked)} of {len(checked)} targets met")


_ENV = """\b
Example:
  kilowait bench env --num-envs 256"""
_TRAIN = """\b
Example:
  kilowait bench train --algos ppo --networks kernel,gat --num-envs 64"""
_LATENCY = """\b
Example:
  kilowait bench latency --quick --out latency.png"""
_PREDICT = """\b
Example:
  kilowait bench predict --jobs 5000"""


@app.command("env", epilog=_ENV)
def environments(
    num_envs: Annotated[
        int, typer.Option("--num-envs", metavar="N", min=1, help="Environments that run in parallel.")
    ] = 1024,
    json: options.Json = False,
) -> None:
    """Measure steps per second of the environments, with observation and action mask: many in parallel, and one."""
    from kilowait.experiments import bench_training
    from kilowait.experiments.bench import BenchResult

    results = []
    benchmarks: list[tuple[str, float, Callable[[], float]]] = [
        (
            f"Batch-v0, {num_envs:,} environments, queue window 128",
            1e6,
            lambda: bench_training.batched_steps_per_s(copies=num_envs),
        ),
        ("Batch-v0, one environment, queue window 128", 5e4, bench_training.single_steps_per_s),
        (
            f"Gpu-v0, {num_envs:,} environments, queue window 128",
            2e5,
            lambda: bench_training.gpu_steps_per_s(copies=num_envs),
        ),
    ]
    for name, target, speed in benchmarks:
        with console.busy(f"{name} ..."):
            results.append(BenchResult(name, speed(), "steps/s", target))
        if not json:
            _show(results[-1])
    if json:
        console.json_document({"machine": _machine(), "measures": [measure.to_dict() for measure in results]})


@app.command("train", epilog=_TRAIN)
def training(
    device: Annotated[str, typer.Option("--device", metavar="D", help="Device: cpu or cuda.")] = "cpu",
    algos: Annotated[
        str, typer.Option("--algos", metavar="A,...", help="Comma-separated training algorithms.")
    ] = "ppo,a2c,d3qn,sac",
    networks: Annotated[
        str, typer.Option("--networks", metavar="N,...", help="Comma-separated network architectures.")
    ] = "kernel,attention,gat",
    num_envs: Annotated[
        int, typer.Option("--num-envs", metavar="N", min=1, help="Environments that run in parallel.")
    ] = 64,
    precision: Annotated[
        str, typer.Option("--precision", metavar="P", help="Floating-point format: float32 or bf16.")
    ] = "float32",
    threads: Annotated[int, typer.Option("--threads", metavar="N", min=1, help="CPU threads of torch.")] = 1,
    updates: Annotated[
        int, typer.Option("--updates", metavar="N", min=1, help="Number of updates timed per combination.")
    ] = 6,
    json: options.Json = False,
) -> None:
    """Measure training steps per second, and their parts, for every algorithm and network on a device."""
    from kilowait.experiments.bench_training import training_speeds

    remaining = training_speeds(
        device=device,
        algorithms=[name.strip() for name in algos.split(",")],
        networks=[name.strip() for name in networks.split(",")],
        envs=num_envs,
        precision=precision,
        threads=threads,
        updates=updates,
    )
    if not json:
        print(f"on {device}, {precision}, {num_envs:,} parallel environments; environment steps per second:\n")
        print(f"{'':<18}{'steps/s':>12}{'in envs':>9}{'envs alone':>13}{'learner alone':>15}")
    results = []
    while True:
        with console.busy("training ..."):
            speed = next(remaining, None)
        if speed is None:
            break
        results.append(speed)
        if not json:
            print(
                f"{speed.algorithm:<6}{speed.network:<12}{speed.steps_per_s:>12,.0f}{speed.env_share:>8.0%} "
                f"{speed.env_steps_per_s:>13,.0f}{speed.learner_steps_per_s:>15,.0f}",
                flush=True,
            )
    if json:
        console.json_document({"machine": _machine(), "training": [speed.to_dict() for speed in results]})


@app.command("latency", epilog=_LATENCY)
def latency(
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", metavar="FILE", help="Write a figure, PNG or SVG; needs pip install 'kilowait[report]'."
        ),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Only short queues and small clusters.")] = False,
    json: options.Json = False,
) -> None:
    """Measure the time of one decision as a function of queue length and cluster size.

    Covers policies, the linear agent and a kernel network, on one core. The scaling exponent is 1 if the time is
    proportional, and 0 if it is constant.
    """
    from kilowait.experiments import bench_latency as measuring

    if out is not None:
        from kilowait.report.figures import need_matplotlib

        need_matplotlib()  # raises before a minute of measuring
    quick_settings = {"lengths": measuring.LENGTHS[:3], "nodes": measuring.NODES[:2], "seconds": 0.02}
    remaining = measuring.latencies(**(quick_settings if quick else {}))  # type: ignore[arg-type]
    if not json:
        print(f"{'':<28}{'waiting':>10}{'nodes':>10}{'per decision':>16}")
    results = []
    while True:
        with console.busy("measuring ..."):
            one = next(remaining, None)
        if one is None:
            break
        results.append(one)
        if not json:
            print(f"{one.policy:<28}{one.queue:>10,}{one.nodes:>10,}{one.seconds * 1e6:>13,.1f} µs", flush=True)
    slopes = measuring.slopes(results)
    if out is not None:
        from kilowait.report.latency_figure import draw_latencies

        draw_latencies(results, slopes, out)
    if json:
        exponents = {name: {"queue": along[0], "nodes": along[1]} for name, along in slopes.items()}
        measures = [one.to_dict() for one in results]
        console.json_document({"machine": _machine(), "latencies": measures, "slopes": exponents})
        return
    print(f"\n{'scaling exponent with':<28}{'the queue':>10}{'nodes':>10}")
    for name, (queue, nodes) in slopes.items():
        print(f"{name:<28}{queue:>10.2f}{nodes:>10.2f}")
    if out is not None:
        print(f"\nfigure written to {out}")


@app.command("predict", epilog=_PREDICT)
def predict(
    jobs: Annotated[
        int,
        typer.Option(
            "--jobs", metavar="N", min=500, help="Jobs of the synthetic workload that the predictor is fitted to."
        ),
    ] = 12_000,
    json: options.Json = False,
) -> None:
    """Measure the time of a predictor: to fit it, to predict many jobs, and to predict one job at its submission."""
    from kilowait.experiments.bench_predictors import predictor_speeds

    remaining = predictor_speeds(jobs)
    results = []
    while True:
        with console.busy("measuring ..."):
            measure = next(remaining, None)
        if measure is None:
            break
        results.append(measure)
        if not json:
            _show(measure)
    if json:
        console.json_document({"machine": _machine(), "measures": [measure.to_dict() for measure in results]})


def _show(measure: BenchResult) -> None:
    if measure.value is None:
        print(f"{measure.name:<48}{'-':>12}  {measure.note}")
        return
    status = target = ""
    if measure.target is not None:
        target = f"{'<=' if measure.less_is_better else '>='} {console.number(measure.target)}"
        status = "ok" if measure.met else "above" if measure.less_is_better else "below"
    note = f"  {measure.note}" if measure.note else ""
    line = f"{measure.name:<48}{console.number(measure.value):>12}  {measure.unit:<7}{target:>12}  {status:<5}{note}"
    print(line.rstrip(), flush=True)


def _machine() -> dict[str, Any]:
    load = os.getloadavg()[0]
    return {"python": platform.python_version(), "cpus": os.cpu_count(), "cpu": platform.machine(), "load": load}
