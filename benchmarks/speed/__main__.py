"""Command line of the speed benchmarks: ``python -m benchmarks.speed PART``."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.speed.measurement import BenchResult, machine
from kilowait.cli.console import number
from kilowait.errors import KilowaitError

HELP = """\
parts:
  simulator   jobs per second, memory and start-up time on one core; real logs with --data or KILOWAIT_DATA
  env         steps per second of the environments, with observation and action mask: many in parallel, and one
  train       training steps per second, and their parts, for every algorithm and network on a device
  latency     time of one decision as a function of queue length and cluster size: policies, linear agent, network
  predict     time to fit a predictor, to predict many jobs, and to predict one job at its submission

The machine should be idle otherwise."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the part that the command line names; returns the exit status."""
    options = _parser().parse_args(arguments)
    try:
        document = PARTS[options.part](options)
    except KilowaitError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    if options.json:
        _print(json.dumps({"machine": machine(), **document}))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.speed", description=HELP, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", choices=sorted(PARTS))
    parser.add_argument("--json", action="store_true", help="print one JSON document and nothing else")
    parser.add_argument("--quick", action="store_true", help="simulator, latency: only the short measurements")
    parser.add_argument("--data", type=Path, help="simulator: folder of real logs, with a subfolder swf/")
    parser.add_argument("--num-envs", type=int, help="env, train: parallel environments (1024; train: 64)")
    parser.add_argument("--device", default="cpu", help="train: cpu or cuda")
    parser.add_argument("--algos", default="ppo,a2c,d3qn,sac", help="train: comma-separated algorithms")
    parser.add_argument("--networks", default="kernel,attention,gat", help="train: comma-separated networks")
    parser.add_argument("--precision", default="float32", help="train: float32 or bf16")
    parser.add_argument("--threads", type=int, default=1, help="train: CPU threads of torch")
    parser.add_argument("--updates", type=int, default=6, help="train: updates timed per combination")
    parser.add_argument("--out", type=Path, help="latency: figure to write, PNG or SVG")
    parser.add_argument("--jobs", type=int, default=12_000, help="predict: jobs that the predictor is fitted to")
    return parser


def simulator(options: argparse.Namespace) -> dict[str, Any]:
    """Measure the simulator."""
    from benchmarks.speed.simulator import run_benchmarks

    if not options.json:
        described = machine()
        _print(
            f"Python {described['python']} on {described['cpus']} cores, load {described['load']:.2f} at the start\n"
        )
        _print(f"{'':<48}{'measured':>12}  {'':<7}{'target':>12}")
    results = _show(run_benchmarks(quick=options.quick, data=options.data), options)
    met = [result.met for result in results if result.met is not None]
    if not options.json:
        _print(f"\n{sum(met)} of {len(met)} targets met")
    return {"measures": [result.to_dict() for result in results]}


def env(options: argparse.Namespace) -> dict[str, Any]:
    """Measure the environments."""
    from benchmarks.speed import training

    copies = options.num_envs or 1024
    measures: list[tuple[str, float, Callable[[], float]]] = [
        (
            f"Batch-v0, {copies:,} environments, queue window 128",
            1e6,
            lambda: training.batched_steps_per_s(copies=copies),
        ),
        ("Batch-v0, one environment, queue window 128", 5e4, training.single_steps_per_s),
        (f"Gpu-v0, {copies:,} environments, queue window 128", 2e5, lambda: training.gpu_steps_per_s(copies=copies)),
    ]
    results = _show((BenchResult(name, speed(), "steps/s", target) for name, target, speed in measures), options)
    return {"measures": [result.to_dict() for result in results]}


def train(options: argparse.Namespace) -> dict[str, Any]:
    """Measure training."""
    from benchmarks.speed.training import training_speeds

    copies = options.num_envs or 64
    if not options.json:
        _print(
            f"on {options.device}, {options.precision}, {copies:,} parallel environments; environment steps per s:\n"
        )
        _print(f"{'':<18}{'steps/s':>12}{'in envs':>9}{'envs alone':>13}{'learner alone':>15}")
    speeds = []
    for speed in training_speeds(
        device=options.device,
        algorithms=[name.strip() for name in options.algos.split(",")],
        networks=[name.strip() for name in options.networks.split(",")],
        envs=copies,
        precision=options.precision,
        threads=options.threads,
        updates=options.updates,
    ):
        speeds.append(speed)
        if not options.json:
            _print(
                f"{speed.algorithm:<6}{speed.network:<12}{speed.steps_per_s:>12,.0f}{speed.env_share:>8.0%} "
                f"{speed.env_steps_per_s:>13,.0f}{speed.learner_steps_per_s:>15,.0f}"
            )
    return {"training": [speed.to_dict() for speed in speeds]}


def latency(options: argparse.Namespace) -> dict[str, Any]:
    """Measure the time of one decision, on one core.

    The scaling exponent is 1 if the time is proportional, and 0 if it is constant.
    """
    from benchmarks.speed.latency import LENGTHS, NODES, latencies, slopes

    if options.out is not None:
        from kilowait.report.figures import need_matplotlib

        need_matplotlib()  # raises before a minute of measuring
    quick: dict[str, Any] = {"lengths": LENGTHS[:3], "nodes": NODES[:2], "seconds": 0.02} if options.quick else {}
    if not options.json:
        _print(f"{'':<28}{'waiting':>10}{'nodes':>10}{'per decision':>16}")
    results = []
    for one in latencies(**quick):
        results.append(one)
        if not options.json:
            _print(f"{one.policy:<28}{one.queue:>10,}{one.nodes:>10,}{one.seconds * 1e6:>13,.1f} µs")
    exponents = slopes(results)
    if options.out is not None:
        from benchmarks.speed.latency_figure import draw_latencies

        draw_latencies(results, exponents, options.out)
    if not options.json:
        _print(f"\n{'scaling exponent with':<28}{'the queue':>10}{'nodes':>10}")
        for name, (queue, nodes) in exponents.items():
            _print(f"{name:<28}{queue:>10.2f}{nodes:>10.2f}")
        if options.out is not None:
            _print(f"\nfigure written to {options.out}")
    return {
        "latencies": [one.to_dict() for one in results],
        "slopes": {name: {"queue": queue, "nodes": nodes} for name, (queue, nodes) in exponents.items()},
    }


def predict(options: argparse.Namespace) -> dict[str, Any]:
    """Measure a predictor."""
    from benchmarks.speed.predictors import predictor_speeds

    return {"measures": [result.to_dict() for result in _show(predictor_speeds(options.jobs), options)]}


PARTS = {"simulator": simulator, "env": env, "train": train, "latency": latency, "predict": predict}


def _show(measures: Iterable[BenchResult], options: argparse.Namespace) -> list[BenchResult]:
    """All results; each is printed when it is measured, unless they are printed as JSON."""
    results = []
    for result in measures:
        results.append(result)
        if not options.json:
            _print(_line(result))
    return results


def _line(result: BenchResult) -> str:
    if result.value is None:
        return f"{result.name:<48}{'-':>12}  {result.note}"
    status = target = ""
    if result.target is not None:
        target = f"{'<=' if result.less_is_better else '>='} {number(result.target)}"
        status = "ok" if result.met else "above" if result.less_is_better else "below"
    note = f"  {result.note}" if result.note else ""
    return f"{result.name:<48}{number(result.value):>12}  {result.unit:<7}{target:>12}  {status:<5}{note}".rstrip()


def _print(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
