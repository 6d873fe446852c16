"""``kilowait bench``: how fast this kilowait is on this machine."""

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
  kilowait bench train --device cuda --envs 4096
  kilowait bench predict"""


@app.callback(invoke_without_command=True, epilog=_EPILOG)
def bench(
    context: typer.Context,
    quick: Annotated[
        bool, typer.Option("--quick", help="Only what takes less than half a minute in all.")
    ] = False,
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Folder of real logs, with swf/ in it; else what KILOWAIT_DATA names."
        ),
    ] = None,
    json: options.Json = False,
) -> None:
    """Measure jobs per second and start-up times on one core, each beside its target.

    The workload is the Lublin-Feitelson model's, 10,000 jobs on 256 nodes; real logs are measured where they are at
    hand. The machine should have nothing else to do. Without a command it is the clock that is measured.
    """
    if context.invoked_subcommand is not None:
        return
    from kilowait.experiments.bench import measures

    machine = _machine()
    if not json:
        print(
            f"Python {machine['python']} on {machine['cpus']} cores, load {machine['load']:.2f} before we began\n"
        )
        print(f"{'':<48}{'measured':>12}  {'':<7}{'target':>12}")
    found = []
    left = measures(quick=quick, data=data)
    while True:
        with console.busy("measuring ..."):
            measure = next(left, None)
        if measure is None:
            break
        found.append(measure)
        if not json:
            _show(measure)
    if json:
        console.json_document({"machine": machine, "measures": [measure.to_dict() for measure in found]})
        return
    judged = [measure.met for measure in found if measure.met is not None]
    print(f"\n{sum(judged)} of {len(judged)} targets met")


@app.command("env")
def environments(
    copies: Annotated[int, typer.Option(metavar="N", min=1, help="Copies that step together.")] = 1024,
    json: options.Json = False,
) -> None:
    """Steps per second of the environments, with observation and mask: many copies at once, and one."""
    from kilowait.experiments import bench_training
    from kilowait.experiments.bench import BenchResult

    found = []
    asked: list[tuple[str, float, Callable[[], float]]] = [
        (
            f"Batch-v0, {copies:,} copies, 128 slots",
            1e6,
            lambda: bench_training.batched_steps_per_s(copies=copies),
        ),
        ("Batch-v0, one copy, 128 slots", 5e4, bench_training.single_steps_per_s),
        (
            f"Gpu-v0, {copies:,} copies, 128 slots",
            2e5,
            lambda: bench_training.gpu_steps_per_s(copies=copies),
        ),
    ]
    for name, target, speed in asked:
        with console.busy(f"{name} ..."):
            found.append(BenchResult(name, speed(), "steps/s", target))
        if not json:
            _show(found[-1])
    if json:
        console.json_document({"machine": _machine(), "measures": [measure.to_dict() for measure in found]})


@app.command("train")
def training(
    device: Annotated[str, typer.Option(metavar="D", help="cpu or cuda.")] = "cpu",
    algos: Annotated[str, typer.Option(metavar="A,...", help="Of ppo, a2c, d3qn, sac.")] = "ppo,a2c,d3qn,sac",
    nets: Annotated[
        str, typer.Option(metavar="N,...", help="Of kernel, attention, gat.")
    ] = "kernel,attention,gat",
    envs: Annotated[int, typer.Option(metavar="N", min=1, help="Environments that play side by side.")] = 64,
    precision: Annotated[str, typer.Option(metavar="P", help="float32 or bf16.")] = "float32",
    threads: Annotated[int, typer.Option(metavar="N", min=1, help="Of torch on the CPU.")] = 1,
    updates: Annotated[
        int, typer.Option(metavar="N", min=1, help="Updates that are timed, of each; fewer are quicker.")
    ] = 6,
    json: options.Json = False,
) -> None:
    """Steps per second of training, and where the time goes, for every algorithm and network on this device."""
    from kilowait.experiments.bench_training import training_speeds

    left = training_speeds(
        device=device,
        algorithms=[name.strip() for name in algos.split(",")],
        networks=[name.strip() for name in nets.split(",")],
        envs=envs,
        precision=precision,
        threads=threads,
        updates=updates,
    )
    if not json:
        print(f"on {device}, {precision}, {envs:,} environments side by side; env steps a second:\n")
        print(f"{'':<18}{'steps/s':>12}{'in envs':>9}{'envs alone':>13}{'learner alone':>15}")
    found = []
    while True:
        with console.busy("training ..."):
            speed = next(left, None)
        if speed is None:
            break
        found.append(speed)
        if not json:
            print(
                f"{speed.algorithm:<6}{speed.network:<12}{speed.steps_per_s:>12,.0f}{speed.env_share:>8.0%} "
                f"{speed.env_steps_per_s:>13,.0f}{speed.learner_steps_per_s:>15,.0f}",
                flush=True,
            )
    if json:
        console.json_document({"machine": _machine(), "training": [speed.to_dict() for speed in found]})


@app.command("latency")
def latency(
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE",
            help="Draw it, as PNG or SVG; needs pip install 'kilowait[report]'.",
        ),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Short queues and small machines alone.")] = False,
    json: options.Json = False,
) -> None:
    """How long one decision takes, against the length of the queue and the size of the machine.

    Of rules, the linear agent and a kernel network, on one core. The power of growth along each tells how they scale: 1
    is in proportion, 0 not at all.
    """
    from kilowait.experiments import bench_latency as measuring

    if out is not None:
        from kilowait.report.figures import need_matplotlib

        need_matplotlib()  # told before a minute is spent
    few = {"lengths": measuring.LENGTHS[:3], "nodes": measuring.NODES[:2], "seconds": 0.02}
    left = measuring.latencies(**(few if quick else {}))  # type: ignore[arg-type]
    if not json:
        print(f"{'':<28}{'waiting':>10}{'nodes':>10}{'a decision':>16}")
    found = []
    while True:
        with console.busy("measuring ..."):
            one = next(left, None)
        if one is None:
            break
        found.append(one)
        if not json:
            print(
                f"{one.decider:<28}{one.queue:>10,}{one.nodes:>10,}{one.seconds * 1e6:>13,.1f} µs", flush=True
            )
    slopes = measuring.slopes(found)
    if out is not None:
        from kilowait.report.latency_figure import draw_latencies

        draw_latencies(found, slopes, out)
    if json:
        told = {name: {"queue": along[0], "nodes": along[1]} for name, along in slopes.items()}
        measures = [one.to_dict() for one in found]
        console.json_document({"machine": _machine(), "latencies": measures, "slopes": told})
        return
    print(f"\n{'power of growth along':<28}{'the queue':>10}{'nodes':>10}")
    for name, (queue, nodes) in slopes.items():
        print(f"{name:<28}{queue:>10.2f}{nodes:>10.2f}")
    if out is not None:
        print(f"\ndrawn in {out}")


@app.command("predict")
def predicting(
    jobs: Annotated[
        int, typer.Option(metavar="N", min=500, help="Jobs of the made workload a predictor learns from.")
    ] = 12_000,
    json: options.Json = False,
) -> None:
    """How long a predictor takes: to be fitted, for many jobs, and for one job at its submission."""
    from kilowait.experiments.bench_predictors import predictor_speeds

    left = predictor_speeds(jobs)
    found = []
    while True:
        with console.busy("measuring ..."):
            measure = next(left, None)
        if measure is None:
            break
        found.append(measure)
        if not json:
            _show(measure)
    if json:
        console.json_document({"machine": _machine(), "measures": [measure.to_dict() for measure in found]})


def _show(measure: BenchResult) -> None:
    if measure.value is None:
        print(f"{measure.name:<48}{'-':>12}  {measure.note}")
        return
    verdict = target = ""
    if measure.target is not None:
        target = f"{'<=' if measure.less_is_better else '>='} {console.number(measure.target)}"
        verdict = "ok" if measure.met else "above" if measure.less_is_better else "below"
    note = f"  {measure.note}" if measure.note else ""
    line = f"{measure.name:<48}{console.number(measure.value):>12}  {measure.unit:<7}{target:>12}  {verdict:<5}{note}"
    print(line.rstrip(), flush=True)


def _machine() -> dict[str, Any]:
    load = os.getloadavg()[0]
    return {
        "python": platform.python_version(),
        "cpus": os.cpu_count(),
        "cpu": platform.machine(),
        "load": load,
    }
