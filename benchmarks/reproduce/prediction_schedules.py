"""What predicted run times are worth: the same windows with users' estimates, with predictions, with perfect ones.

Five logs, EASY backfilling, mean bounded slowdown; 60 windows of 1,024 jobs in the last 30 % of each log judge, once.
Every job's run time is predicted by a forest that was fitted before its submission on jobs that had ended by then in a
first replay of the log (fcfs, users' estimates). The agent is `kilowait train --predict forest`, the same settings for
all logs: trained on the first 60 %, chosen on the next 10 %. The gap is that from the best rule with users' estimates,
in hindsight, to the same rule with perfect ones.

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
from benchmarks.reproduce.batch_learning import (
    LOGS,
    RULES,
    windows_of,
    workload,
)
from benchmarks.reproduce.data_paths import Sources
from benchmarks.reproduce.text_tables import table
from kilowait import agents
from kilowait.agents.evolution.objectives import mean_bsld
from kilowait.agents.linear_batch.agent import load_agent
from kilowait.errors import KilowaitError, UnknownNameError
from kilowait.evaluation.bounds import with_perfect_estimates
from kilowait.evaluation.comparison import PolicyScores, split
from kilowait.evaluation.comparison import pairwise_tests as judged_scores
from kilowait.experiments.predict_runtimes import foreseen, with_requests
from kilowait.jobs import JobTable

__all__ = ["figures", "result", "text"]

FORESEEN = tuple(log for log in LOGS if log != "lublin_256")
"""Logs with requests; a made one has nothing to predict."""
AGENT = "agent, predictions"


def told_of(path: str, folder: Path, log: str) -> tuple[JobTable, float]:
    """The log with predictions, and how long those took, seconds; made once for a folder."""
    kept = folder / f"{log}.parquet"
    took = folder / f"{log}.seconds"
    if not kept.exists():
        folder.mkdir(parents=True, exist_ok=True)
        jobs, machine = workload(path)
        began = time.perf_counter()
        foreseen(jobs, machine, "forest").to_parquet(kept)
        took.write_text(f"{time.perf_counter() - began:.1f}\n", encoding="ascii")
    return JobTable.from_parquet(kept), float(took.read_text("ascii"))


def agent_of(
    path: str, told: JobTable, folder: Path, log: str, seed: int, threads: int
) -> tuple[agents.LinearAgent, float]:
    """An agent trained on predictions, and how long that took, seconds; trained once for a folder."""
    kept = folder / f"{log}-agent-{seed}.json"
    took = folder / f"{log}-agent-{seed}.seconds"
    if not kept.exists():
        parts = split(told, validation=0.1)
        began = time.perf_counter()
        agent, _ = agents.train(
            parts.train, parts.validation, workload(path)[1], seed=seed, trace=path, threads=threads
        )
        took.write_text(f"{time.perf_counter() - began:.1f}\n", encoding="ascii")
        agent.save(kept)
    return load_agent(kept), float(took.read_text("ascii"))


def figures(path: str, folder: Path, log: str, seeds: Sequence[int], threads: int = 1) -> dict[str, Any]:
    """Mean bounded slowdown of every contender in every window."""
    told, predicting_s = told_of(path, folder, log)
    machine = workload(path)[1]
    windows = [window.jobs for window in windows_of(told)]
    users = [with_requests(jobs) for jobs in windows]
    perfect = [with_perfect_estimates(jobs) for jobs in windows]

    def slowdowns(jobs: Sequence[JobTable], policy: Any, **rules: Any) -> list[float]:
        return [mean_bsld(kw.simulate(window, machine, policy, "easy", **rules)) for window in jobs]

    values = {rule: slowdowns(users, rule) for rule in RULES}
    values["easy++"] = slowdowns(users, "easy++")
    for rule in ("fcfs", "sjf", "saf", "saf_short"):
        values[f"{rule}, predictions"] = slowdowns(windows, rule, overrun="later")
    trained = [agent_of(path, told, folder, log, seed, threads) for seed in seeds]
    by_seed = [slowdowns(windows, agent.rule) for agent, _ in trained]
    values[AGENT] = np.mean(by_seed, axis=0).tolist()
    values["agent"] = np.mean([slowdowns(users, agent.rule) for agent, _ in trained], axis=0).tolist()
    for rule in RULES:
        values[f"{rule}, perfect"] = slowdowns(perfect, rule)
    return {
        "values": values,
        "by_seed": [float(np.mean(one)) for one in by_seed],
        "predicting_s": predicting_s,
        "training_s": float(np.mean([seconds for _, seconds in trained])),
    }


def result(path: str, found: dict[str, Any]) -> dict[str, Any]:
    """Who is how much of the best rule, how sure that is, and which part of the gap is closed."""
    values: dict[str, list[float]] = found["values"]
    means = {name: float(np.mean(row)) for name, row in values.items()}
    best = min(RULES, key=lambda rule: means[rule])
    knowing = f"{best}, perfect"
    named = [name for name in values if not name.endswith(", perfect") or name == knowing]
    cut = windows_of(workload(path)[0])
    verdicts = judged_scores(
        PolicyScores(
            "mean_bsld", tuple(named), np.array([values[name] for name in named]), overlap=cut.overlap
        ),
        seed=0,
    )
    rows = {}
    for name in named:
        pair = None if name == best else verdicts.pair(name, best)
        rows[name] = {
            "mean_bsld": means[name],
            "ratio": 1.0 if pair is None else pair.ratio,
            "interval": None if pair is None else [pair.low, pair.high],
            "verdict": "the best rule" if pair is None else pair.verdict,
            "gap_closed": (means[best] - means[name]) / (means[best] - means[knowing]),
        }
    rest = {name: value for name, value in found.items() if name != "values"}
    return {"best_rule": best, "words": cut.words, "rows": rows, **rest}


def text(results: dict[str, Any]) -> str:
    """A table a log, and the mean of the gaps closed."""
    parts = []
    for log, one in results.items():
        rows = []
        for name, row in sorted(one["rows"].items(), key=lambda item: item[1]["mean_bsld"]):
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
        seeds = ", ".join(f"{value:.2f}" for value in one["by_seed"])
        parts.append(
            f"{log}: {one['words']}; predictions {one['predicting_s']:.0f} s, training {one['training_s']:.0f} s; "
            f"agent by seed {seeds}\n\n"
            + table(["", "mean bsld", "of the best rule", "95 % interval", "verdict", "gap closed"], rows)
        )
    lines = []
    for name in ("saf, predictions", "saf_short, predictions", "agent", AGENT):
        told = [one["rows"][name] for one in results.values()]
        lines.append(
            f"{name}: closes {100 * np.mean([row['gap_closed'] for row in told]):.0f} % of the gap on average; "
            f"{np.exp(np.mean(np.log([row['ratio'] for row in told]))):.3f} of the best rule (geometric mean), "
            f"at most {max(row['ratio'] for row in told):.3f}; worse than it on "
            f"{sum(row['verdict'] == 'worse' for row in told)} of {len(told)} logs"
        )
    return "\n\n".join([*parts, "\n".join(lines)])


def main(words: Sequence[str] | None = None) -> int:
    """Exit code 0: the table is printed; 2: it could not be made."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reproduce.prediction_schedules")
    parser.add_argument("--data", metavar="DIR", help="folder of real logs; else what KILOWAIT_DATA names")
    parser.add_argument(
        "--out", default="runs/foresight", metavar="DIR", help="folder for predictions and figures"
    )
    parser.add_argument("--logs", default=",".join(FORESEEN), metavar="A,B", help="some of the logs")
    parser.add_argument("--seeds", default="0,1,2", metavar="N,...", help="of the agents")
    parser.add_argument("--threads", type=int, default=2, metavar="N", help="simulations at a time")
    parser.add_argument("--json", action="store_true", help="all numbers as JSON instead of tables")
    given = parser.parse_args(words)
    folder = Path(given.out)
    try:
        sources = Sources.find(given.data)
        results = {}
        for log in given.logs.split(","):
            if log not in FORESEEN:
                raise UnknownNameError("log", log, FORESEEN)
            path = str(sources.file(LOGS[log], ""))
            kept = folder / f"{log}.figures.json"
            if not kept.exists():
                _say(f"{log} ...")
                found = figures(
                    path, folder, log, [int(seed) for seed in given.seeds.split(",")], given.threads
                )
                kept.write_text(json.dumps(found) + "\n", encoding="utf-8")
            results[log] = result(path, json.loads(kept.read_text("utf-8")))
    except KilowaitError as problem:
        _say(f"error: {' '.join(str(problem).split())}")
        return 2
    sys.stdout.write((json.dumps(results, indent=2) if given.json else text(results)) + "\n")
    return 0


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


if __name__ == "__main__":
    raise SystemExit(main())
