"""Effect of predicted run times on scheduling: user estimates, predictions and perfect estimates compared.

Five logs, EASY backfilling, mean bounded slowdown; the test set is 60 windows of 1,024 jobs in the last 30 % of each
log. Every job's run time is predicted by a forest fitted before its submission on jobs that had ended by then in a
first replay of the log (fcfs, users' estimates). The agent is `kilowait train --runtime-predictor forest`, with the
same settings for all logs: trained on the first 60 %, selected on the next 10 %. The gap is the difference between
the best policy with user estimates (chosen on the test windows) and the same policy with perfect estimates.

    python -m benchmarks.reproduce.prediction_schedules --out runs/foresight [--logs KTH-SP2,Theta] [--seeds 0,1,2]
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import kilowait as kw
from benchmarks.reproduce.batch_learning import LOGS, RULES, windows_of, workload
from benchmarks.reproduce.data_paths import Sources
from benchmarks.reproduce.text_tables import table
from kilowait import agents
from kilowait.agents.evolution.search import mean_bsld
from kilowait.agents.linear_batch import load_linear_agent
from kilowait.errors import KilowaitError, UnknownNameError
from kilowait.evaluation.bounds import with_perfect_estimates
from kilowait.evaluation.comparison import PolicyScores, pairwise_tests, split
from kilowait.experiments.predictors import with_predicted_runtimes, with_requests
from kilowait.jobs import JobTable

__all__ = ["measure", "result", "text"]

PREDICTED_LOGS = tuple(log for log in LOGS if log != "lublin_256")
"""Logs with requests; synthetic logs have nothing to predict."""
AGENT = "agent, predictions"


def jobs_with_predictions(path: str, folder: Path, log: str) -> tuple[JobTable, float]:
    """The log with predictions, and the prediction time in seconds; cached in the folder."""
    cache_path = folder / f"{log}.parquet"
    time_path = folder / f"{log}.seconds"
    if not cache_path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        jobs, machine = workload(path)
        start_time = time.perf_counter()
        with_predicted_runtimes(jobs, machine, "forest").to_parquet(cache_path)
        time_path.write_text(f"{time.perf_counter() - start_time:.1f}\n", encoding="ascii")
    return JobTable.from_parquet(cache_path), float(time_path.read_text("ascii"))


def agent_of(
    path: str, jobs: JobTable, folder: Path, log: str, seed: int, threads: int
) -> tuple[agents.LinearAgent, float]:
    """An agent trained on predictions, and the training time in seconds; cached in the folder."""
    cache_path = folder / f"{log}-agent-{seed}.json"
    time_path = folder / f"{log}-agent-{seed}.seconds"
    if not cache_path.exists():
        parts = split(jobs, validation=0.1)
        start_time = time.perf_counter()
        settings = agents.BatchSearchSettings(seed=seed, trace=path, threads=threads)
        objective = agents.BatchObjective(parts.train, parts.validation, workload(path)[1], settings)
        agent, _ = agents.train_linear_agent(objective)
        time_path.write_text(f"{time.perf_counter() - start_time:.1f}\n", encoding="ascii")
        agent.save(cache_path)
    return load_linear_agent(cache_path), float(time_path.read_text("ascii"))


def measure(path: str, folder: Path, log: str, seeds: Sequence[int], threads: int = 1) -> dict[str, Any]:
    """Mean bounded slowdown of every policy in every window."""
    jobs, predicting_s = jobs_with_predictions(path, folder, log)
    machine = workload(path)[1]
    windows = [window.jobs for window in windows_of(jobs)]
    users = [with_requests(jobs) for jobs in windows]
    perfect = [with_perfect_estimates(jobs) for jobs in windows]

    def slowdowns(jobs: Sequence[JobTable], policy: Any, **rules: Any) -> list[float]:
        return [mean_bsld(kw.simulate(window, machine, policy, "easy", **rules)) for window in jobs]

    values = {rule: slowdowns(users, rule) for rule in RULES}
    values["easy++"] = slowdowns(users, "easy++")
    for rule in ("fcfs", "sjf", "saf", "saf_short"):
        values[f"{rule}, predictions"] = slowdowns(windows, rule, overrun="quantile")
    trained = [agent_of(path, jobs, folder, log, seed, threads) for seed in seeds]
    by_seed = [slowdowns(windows, agent.policy) for agent, _ in trained]
    values[AGENT] = np.mean(by_seed, axis=0).tolist()
    values["agent"] = np.mean([slowdowns(users, agent.policy) for agent, _ in trained], axis=0).tolist()
    for rule in RULES:
        values[f"{rule}, perfect"] = slowdowns(perfect, rule)
    return {
        "values": values,
        "by_seed": [float(np.mean(log_result)) for log_result in by_seed],
        "predicting_s": predicting_s,
        "training_s": float(np.mean([seconds for _, seconds in trained])),
    }


def result(path: str, results: dict[str, Any]) -> dict[str, Any]:
    """Ratio of every policy to the best priority policy, its significance, and the share of the gap closed."""
    values: dict[str, list[float]] = results["values"]
    means = {name: float(np.mean(row)) for name, row in values.items()}
    best = min(RULES, key=lambda rule: means[rule])
    best_with_perfect_estimates = f"{best}, perfect"
    names = [name for name in values if not name.endswith(", perfect") or name == best_with_perfect_estimates]
    cut = windows_of(workload(path)[0])
    tests = pairwise_tests(
        PolicyScores("mean_bsld", tuple(names), np.array([values[name] for name in names]), overlap=cut.overlap), seed=0
    )
    rows = {}
    for name in names:
        pair = None if name == best else tests.pair(name, best)
        rows[name] = {
            "mean_bsld": means[name],
            "ratio": 1.0 if pair is None else pair.ratio,
            "interval": None if pair is None else [pair.low, pair.high],
            "verdict": "best policy" if pair is None else pair.verdict,
            "gap_closed": (means[best] - means[name]) / (means[best] - means[best_with_perfect_estimates]),
        }
    rest = {name: value for name, value in results.items() if name != "values"}
    return {"best_rule": best, "words": cut.description, "rows": rows, **rest}


def text(results: dict[str, Any]) -> str:
    """A table for each log, and the mean shares of the gap closed."""
    parts = []
    for log, log_result in results.items():
        rows = []
        for name, row in sorted(log_result["rows"].items(), key=lambda item: item[1]["mean_bsld"]):
            interval = row["interval"]
            rows.append(
                [
                    name,
                    f"{row['mean_bsld']:.2f}",
                    f"{row['ratio']:.3f}",
                    "" if interval is None else f"{interval[0]:.2f} to {interval[1]:.2f}",
                    row["verdict"],
                    f"{100 * row['gap_closed']:.0f} %" if row["gap_closed"] > -1 else "",
                ]
            )
        seeds = ", ".join(f"{value:.2f}" for value in log_result["by_seed"])
        parts.append(
            f"{log}: {log_result['words']}; predictions {log_result['predicting_s']:.0f} s, "
            f"training {log_result['training_s']:.0f} s; agent by seed {seeds}\n\n"
            + table(["", "mean bsld", "ratio to best policy", "95 % interval", "verdict", "gap closed"], rows)
        )
    lines = []
    for name in ("saf, predictions", "saf_short, predictions", "agent", AGENT):
        jobs = [log_result["rows"][name] for log_result in results.values()]
        lines.append(
            f"{name}: closes {100 * np.mean([row['gap_closed'] for row in jobs]):.0f} % of the gap on average; "
            f"{np.exp(np.mean(np.log([row['ratio'] for row in jobs]))):.3f} of the best policy (geometric mean), "
            f"at most {max(row['ratio'] for row in jobs):.3f}; worse than it on "
            f"{sum(row['verdict'] == 'worse' for row in jobs)} of {len(jobs)} logs"
        )
    return "\n\n".join([*parts, "\n".join(lines)])


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the tables. Exit code 0: printed; 2: an error occurred."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reproduce.prediction_schedules")
    parser.add_argument("--data", metavar="DIR", help="folder of real logs (default: KILOWAIT_DATA)")
    parser.add_argument("--out", default="runs/foresight", metavar="DIR", help="folder for predictions and results")
    parser.add_argument("--logs", default=",".join(PREDICTED_LOGS), metavar="A,B", help="only these logs")
    parser.add_argument("--seeds", default="0,1,2", metavar="N,...", help="seeds of the agents")
    parser.add_argument("--threads", type=int, default=2, metavar="N", help="parallel simulations")
    parser.add_argument("--json", action="store_true", help="all numbers as JSON instead of tables")
    options = parser.parse_args(arguments)
    folder = Path(options.out)
    try:
        sources = Sources.find(options.data)
        results = {}
        for log in options.logs.split(","):
            if log not in PREDICTED_LOGS:
                raise UnknownNameError("log", log, PREDICTED_LOGS)
            path = str(sources.file(LOGS[log], ""))
            cache_path = folder / f"{log}.figures.json"
            if not cache_path.exists():
                _print_progress(f"{log} ...")
                measured = measure(path, folder, log, [int(seed) for seed in options.seeds.split(",")], options.threads)
                cache_path.write_text(json.dumps(measured) + "\n", encoding="utf-8")
            results[log] = result(path, json.loads(cache_path.read_text("utf-8")))
    except KilowaitError as error:
        _print_progress(f"error: {' '.join(str(error).split())}")
        return 2
    sys.stdout.write((json.dumps(results, indent=2) if options.json else text(results)) + "\n")
    return 0


def _print_progress(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


if __name__ == "__main__":
    raise SystemExit(main())
