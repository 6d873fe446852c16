"""Selection of the prediction settings: policies, orders and run-time bounds on windows at 20 to 70 % of eleven logs.

This is no evaluation: later jobs are reserved for `prediction_schedules`. Every window is run several times with
submissions shifted by up to a minute, because different tie-breaking changes its mean by up to a fifth. Queue orders
are those of the untrained agent (`default_weights`, no user history) with user requests, with predictions, or with the
true run times.

    python -m benchmarks.reproduce.reservation_bounds --out runs/planning [--logs KTH-SP2,Theta] [--processes 2]
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import kilowait as kw
from benchmarks.reproduce.batch_learning import LOGS, RULES, workload
from benchmarks.reproduce.data_paths import Sources
from benchmarks.reproduce.text_tables import table
from kilowait.agents.evolution.search import mean_bsld
from kilowait.agents.linear_batch import LinearAgent, default_weights
from kilowait.cluster import Cluster
from kilowait.errors import KilowaitError, UnknownNameError
from kilowait.evaluation.bounds import with_perfect_estimates
from kilowait.experiments.predictors import first_replay
from kilowait.jobs import JobTable
from kilowait.predict.walk_forward import predict_runtimes
from kilowait.rng import stream

__all__ = ["simulate_window", "text"]

Floats = npt.NDArray[np.float64]

OTHERS = {
    "Curie": "swf/CEA-Curie-2011-2.1-cln.swf.gz",
    "Gaia": "swf/UniLu-Gaia-2014-1.swf.gz",
    "Intrepid": "swf/ANL-Intrepid-2009-1.swf.gz",
    "Theta, lumos": "alcf/lumos_theta.csv.gz",
    "Mira": "alcf/lumos_mira.csv.gz",
    "Ross": "swf/Sandia-Ross-2001-1.1-cln.swf.gz",
}
FILES = {name: file for name, file in LOGS.items() if name != "lublin_256"} | OTHERS
MAX_JOBS = {"Curie": 60_000}
"""Maximum jobs used of a log; all jobs of the other logs."""
WITHIN = (0.2, 0.7)
WINDOWS, WINDOW_JOBS, MOVED_S = 56, 1024, 60.0
LEVELS = (0.5, 0.6, 0.7, 0.8, 0.9)
NAMES = {
    "agent, requests": "requests for order and reservations",
    **{f"agent, bound {level:g}": "predictions" for level in LEVELS},
    "agent, request as bound": "predicted order, reservations by the request",
    "agent, true bound": "predicted order, reservations by the true run time",
    "true area, request as bound": "ordered by true run times, reservations by the request",
    "saf_short": "the policy saf_short with predictions",
}


@cache
def log_of(path: str, max_jobs: int | None) -> tuple[JobTable, Cluster]:
    """The jobs up to the end of the last window."""
    jobs, machine = workload(path)
    return (jobs if max_jobs is None else jobs[:max_jobs]), machine


def predictions_of(path: str, max_jobs: int | None, cache_path: Path) -> dict[str, Floats]:
    """Predictions of all jobs, cached in the folder."""
    if not cache_path.exists():
        cache_path.parent.mkdir(parents=True, exist_ok=True)
        jobs, machine = log_of(path, max_jobs)
        jobs = jobs[: round((WITHIN[1] + 0.05) * len(jobs))]
        means = predict_runtimes(jobs, first_replay(jobs, machine), machine.size, threads=2)
        columns = {**means.columns(), **{f"{level:g}": means.quantile(level) for level in LEVELS}}
        np.savez_compressed(cache_path, allow_pickle=False, **columns)
    with np.load(cache_path) as file:
        return {name: file[name].astype(np.float64) for name in file.files}


def simulate_window(path: str, max_jobs: int | None, cache_path: Path, first: int, move: int) -> dict[str, float]:
    """Mean bounded slowdown of every policy in the window from job `first`; `move` numbers the shift (0: none)."""
    jobs, machine = log_of(path, max_jobs)
    rows = slice(first, first + WINDOW_JOBS)
    predictions = {name: values[rows] for name, values in predictions_of(path, max_jobs, cache_path).items()}
    window = jobs[rows]
    if move:
        shift_s = stream(first, f"planning.{move}").uniform(0.0, MOVED_S, len(window)).round()
        window = window.with_columns(submit_s=np.sort(window["submit_s"] + shift_s))
    agent = LinearAgent(default_weights()).policy
    true_s = np.maximum(window["runtime_s"], 1.0)

    def slowdown(variant: JobTable, policy: Any, **rules: Any) -> float:
        return mean_bsld(kw.simulate(variant, machine, policy, "easy", on_oversized="drop", **rules))

    def predicted(planned_s: Floats, overrun_planned_s: Floats | None) -> JobTable:
        columns: dict[str, Any] = {
            name: predictions[name] for name in ("estimate_s", "expected_inverse_runtime", "limit_s")
        }
        with_predictions: JobTable = window.with_columns(
            **columns, planned_s=planned_s, overrun_planned_s=overrun_planned_s
        )
        return with_predictions

    means = {rule: slowdown(window, rule) for rule in RULES}
    perfect = with_perfect_estimates(window)
    means |= {f"{rule}, perfect": slowdown(perfect, rule) for rule in RULES}
    means["agent, requests"] = slowdown(window, agent)
    for level in LEVELS:
        means[f"agent, bound {level:g}"] = slowdown(
            predicted(predictions[f"{level:g}"], predictions["overrun_planned_s"]), agent
        )
    means["agent, request as bound"] = slowdown(predicted(predictions["limit_s"], None), agent, overrun="double")
    means["agent, true bound"] = slowdown(predicted(true_s, None), agent, overrun="double")
    limits = window.with_columns(estimate_s=true_s, planned_s=window["estimate_s"], limit_s=window["estimate_s"])
    means["true area, request as bound"] = slowdown(limits, "saf")
    means["saf_short"] = slowdown(
        predicted(predictions["planned_s"], predictions["overrun_planned_s"]), "saf_short", overrun="quantile"
    )
    return means


def text(results: dict[str, dict[str, float]]) -> str:
    """Ratio of every policy to the best one with user requests (hindsight) by log, and the share of the gap closed."""
    rows: list[list[str]] = []
    best = {log: min(RULES, key=lambda rule: means[rule]) for log, means in results.items()}
    for name in NAMES:
        ratios = {log: means[name] / means[best[log]] for log, means in results.items()}
        closed = [
            (1.0 - ratio) / (1.0 - results[log][f"{best[log]}, perfect"] / results[log][best[log]])
            for log, ratio in ratios.items()
            if log not in OTHERS
        ]
        geometric = float(np.exp(np.mean(np.log(list(ratios.values())))))
        part = f"{100 * np.mean(closed):.0f} %" if closed else ""
        rows.append([name, *(f"{ratio:.2f}" for ratio in ratios.values()), f"{geometric:.3f}", part])
    heads = ["", *results, "geometric mean", "gap closed, five logs"]
    notes = "\n".join(f"{name}: {description}" for name, description in NAMES.items())
    return f"{table(heads, rows)}\n\n{notes}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table. Exit code 0: printed; 2: an error occurred."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reproduce.reservation_bounds")
    parser.add_argument("--data", metavar="DIR", help="folder of real logs (default: KILOWAIT_DATA)")
    parser.add_argument("--out", default="runs/planning", metavar="DIR", help="folder for predictions")
    parser.add_argument("--logs", nargs="+", default=list(FILES), metavar="LOG", help="some of the logs")
    parser.add_argument("--moves", type=int, default=6, metavar="N", help="simulations of each window")
    parser.add_argument("--processes", type=int, default=2, metavar="N")
    parser.add_argument("--json", action="store_true", help="all means as JSON instead of a table")
    options = parser.parse_args(arguments)
    folder = Path(options.out)
    results = {}
    try:
        sources = Sources.find(options.data)
        with ProcessPoolExecutor(options.processes, mp_context=get_context("spawn")) as pool:
            logs: dict[str, tuple[str, int | None, Path]] = {}
            for log in options.logs:
                if log not in FILES:
                    raise UnknownNameError("log", log, FILES)
                path = str(sources.file(FILES[log], ""))
                logs[log] = (path, MAX_JOBS.get(log), folder / f"{log}.npz")
            predicting = [pool.submit(predictions_of, *log_spec) for log_spec in logs.values()]
            for log, log_spec, future in zip(logs, logs.values(), predicting, strict=True):
                future.result()
                sys.stderr.write(f"{log} ...\n")
                count = len(log_of(*log_spec[:2])[0])
                starts = np.linspace(WITHIN[0] * count, WITHIN[1] * count - WINDOW_JOBS, WINDOWS)
                futures = [
                    pool.submit(simulate_window, *log_spec, int(first), move)
                    for first in starts
                    for move in range(options.moves)
                ]
                window_results = [task.result() for task in futures]
                results[log] = {
                    name: float(np.mean([window_means[name] for window_means in window_results]))
                    for name in window_results[0]
                }
    except KilowaitError as error:
        sys.stderr.write(f"error: {' '.join(str(error).split())}\n")
        return 2
    sys.stdout.write((json.dumps(results, indent=2) if options.json else text(results)) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
