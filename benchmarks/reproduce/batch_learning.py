"""Learned scheduling policies for batch clusters against nine priority policies, evaluated on later jobs.

Six logs, EASY backfilling, users' estimates, mean bounded slowdown. The first 60 % of a log are the
training set, the next 10 % the validation set, and 60 windows of 1,024 jobs in the last 30 % the test set. Every
algorithm has the same settings for all logs, and three seeds; its result is their mean, window by window. The best
policy is the one with the lowest mean on the test windows themselves, that is, chosen with hindsight.

Training is separate from the table, for a machine with more cores: each run saves its agent and results in a folder.

    python -m benchmarks.reproduce.batch_learning --train --out runs/learning --processes 2
    python -m benchmarks.reproduce.batch_learning --agents runs/learning
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import kilowait as kw
from benchmarks.reproduce import rlscheduler
from benchmarks.reproduce.data_paths import Sources
from benchmarks.reproduce.gpu_learning import NEVER, SMALL_STEPS
from benchmarks.reproduce.parallel_tasks import run_parallel
from benchmarks.reproduce.text_tables import table
from kilowait import agents
from kilowait.agents.evolution.search import mean_bsld
from kilowait.cluster import Cluster
from kilowait.errors import InputError, KilowaitError
from kilowait.evaluation.comparison import PolicyScores, Windows, cut_windows, pairwise_tests, split
from kilowait.experiments.policies import resolve_policy
from kilowait.experiments.scenario import prepare_scenario
from kilowait.experiments.settings import Scenario
from kilowait.experiments.training.network import train_network
from kilowait.experiments.training.rl_settings import RLTraining
from kilowait.jobs import JobTable

__all__ = ["evaluate", "results", "text", "train"]

LOGS = {
    "SDSC-SP2": "swf/SDSC-SP2-1998-4.2-cln.swf.gz",
    "HPC2N": "swf/HPC2N-2002-2.2-cln.swf.gz",
    "KTH-SP2": "swf/KTH-SP2-1996-2.1-cln.swf.gz",
    "SDSC-BLUE": "swf/SDSC-BLUE-2000-4.2-cln.swf.gz",
    "lublin_256": "swf/lublin_256.swf.gz",
    "Theta": "alcf/rlhpc_theta_2023_feb_dec.swf.gz",
}
"""Log name to path in the folder of logs."""
RULES = ("fcfs", "sjf", "saf", "f1", "f2", "f3", "f4", "wfp3", "unicef")
NETWORKS = ("ppo", "d3qn", "sac")
LEARNERS = ("cma-es", *NETWORKS)
LOOKAHEAD = "lookahead:base=saf:width=8:depth=32"
SEEDS = (0, 1, 2)
WINDOWS, WINDOW_JOBS = 60, 1024
FOLDER = "runs/learning"
Say = Callable[[str], None]

RECIPE: dict[str, Any] = {
    "num_envs": 32,
    "episode_jobs": 512,
    "queue_window": 64,
    "windows": 24,
    "window_jobs": WINDOW_JOBS,
    "expert": "saf",
    "expert_steps": 50_000,
}
"""Settings of all networks and logs: behaviour cloning of SAF, then RL; the best on validation jobs is kept."""
STEPS = {"ppo": 2_000_000, "d3qn": 200_000, "sac": 200_000}
"""Training decisions of a network after its warm start, unless the time limit ends training earlier."""


@cache
def workload(path: str) -> tuple[JobTable, Cluster]:
    """Load a log and its cluster."""
    trace, cluster, _ = prepare_scenario(Scenario(trace=path))
    return trace.jobs.sorted(), cluster


def windows_of(jobs: JobTable) -> Windows:
    """The test windows."""
    within = split(jobs, validation=0.1).row_range("test")
    return cut_windows(jobs, WINDOWS, window_jobs=WINDOW_JOBS, seed=0, within=within)


def train(
    path: str, algo: str, seed: int, stem: Path, *, seconds: float = math.inf, **overrides: Any
) -> tuple[Any, float]:
    """Train an agent; return it and the training time in seconds. Names of its files begin with `stem`."""
    jobs, cluster = workload(path)
    parts = split(jobs, validation=0.1)
    start_s = time.perf_counter()
    if algo == "cma-es":
        search = agents.BatchSearchSettings(seed=seed, trace=path, **overrides)
        agent, _ = agents.train_linear_agent(agents.BatchObjective(parts.train, parts.validation, cluster, search))
        agent.save(stem.with_name(stem.name + ".json"))
        return agent, time.perf_counter() - start_s
    hyperparameters = {**SMALL_STEPS[algo], "checkpoint_every": NEVER, **overrides.pop("hyperparameters", {})}
    settings = RLTraining(
        **{
            **RECIPE,
            "algo": algo,
            "seed": seed,
            "total_timesteps": STEPS[algo],
            "time_limit_s": seconds,
            "hyperparameters": hyperparameters,
        }
        | overrides
    )
    agent, _ = train_network(
        parts.train, parts.validation, cluster, settings, folder=stem.with_name(stem.name + ".training")
    )
    return agent, time.perf_counter() - start_s


def evaluate(path: str, policy: Any) -> list[float]:
    """Mean bounded slowdown of each test window."""
    jobs, cluster = workload(path)
    return [mean_bsld(kw.simulate(window.jobs, cluster, policy, "easy")) for window in windows_of(jobs)]


def on_their_windows(path: str, policy: Any) -> float:
    """Mean bounded slowdown on RLScheduler's ten windows of lublin_256; most of them overlap the training jobs."""
    jobs, cluster = workload(path)
    starts = rlscheduler.window_starts(*rlscheduler.DRAWS["windows1024"], jobs=len(jobs))
    length = rlscheduler.DRAWS["windows1024"][2]
    values = [mean_bsld(kw.simulate(jobs[first : first + length], cluster, policy, "easy")) for first in starts]
    return float(np.mean(values))


def run_task(log: str, path: str, algo: str, seed: int, folder: Path, seconds: float) -> str:
    """Run one task (train if necessary, evaluate, save); return a progress message."""
    stem = folder / f"{log}-{algo}-{seed}"
    folder.mkdir(parents=True, exist_ok=True)
    start_s = time.perf_counter()
    if algo == "rules":
        output: dict[str, Any] = {"values": {rule: evaluate(path, rule) for rule in RULES}}
    elif algo == "look-ahead":
        output = {"values": evaluate(path, resolve_policy(LOOKAHEAD)), "training_s": 0.0}
    else:
        agent, training_s = train(path, algo, seed, stem, seconds=seconds)
        policy = agent.policy if algo == "cma-es" else agent
        output = {"values": evaluate(path, policy), "training_s": training_s}
        if algo == "cma-es":
            output["went"] = {name: agent.provenance[name] for name in ("start", "accepted_step", "fallback_policy")}
        if log == "lublin_256":
            output["their_windows"] = on_their_windows(path, policy)
    Path(f"{stem}.judged.json").write_text(json.dumps(output) + "\n", encoding="utf-8")
    return f"{log}, {algo}, seed {seed}: {time.perf_counter() - start_s:.0f} s"


def all_tasks() -> list[tuple[str, str, int]]:
    """All tasks: log, algorithm (or "rules", "look-ahead") and seed."""
    once = [(log, task_name, 0) for log in LOGS for task_name in ("rules", "look-ahead")]
    return once + [(log, algo, seed) for algo in LEARNERS for log in LOGS for seed in SEEDS]


def train_all(
    sources: Sources, folder: Path, processes: int, seconds: float, learners: Sequence[str], say: Say
) -> None:
    """Run all tasks without saved results in parallel."""
    paths = {log: str(sources.file(name, "see docs/formats.md")) for log, name in LOGS.items()}
    todo = [
        task
        for task in all_tasks()
        if task[1] in learners and not (folder / f"{task[0]}-{task[1]}-{task[2]}.judged.json").exists()
    ]
    say(f"{len(todo)} tasks in {processes} processes, each network for {seconds:.0f} s at most")
    calls = [(log, paths[log], algo, seed, folder, seconds) for log, algo, seed in todo]
    run_parallel(run_task, calls, processes, say)


def results(sources: Sources, say: Say, folder: Path = Path(FOLDER)) -> dict[str, Any]:
    """Results from the folder; missing agents are trained one after another, which takes hours."""
    train_all(sources, folder, 1, math.inf, ("rules", "look-ahead", *LEARNERS), say)
    return {log: _compared(folder, log, workload(str(sources.file(name, "")))[0]) for log, name in LOGS.items()}


def _compared(folder: Path, log: str, jobs: JobTable) -> dict[str, Any]:
    """Every policy and algorithm on one log, compared with the best policy."""

    def load_result(task_name: str, seed: int) -> dict[str, Any]:
        saved: dict[str, Any] = json.loads((folder / f"{log}-{task_name}-{seed}.judged.json").read_text("utf-8"))
        return saved

    values: dict[str, Any] = dict(load_result("rules", 0)["values"])
    best = min(values, key=lambda rule: float(np.mean(values[rule])))
    learned: dict[str, dict[str, Any]] = {}
    for task_name in ("look-ahead", *LEARNERS):
        runs = [load_result(task_name, seed) for seed in (SEEDS if task_name in LEARNERS else (0,))]
        values[task_name] = np.mean([run["values"] for run in runs], axis=0).tolist()
        learned[task_name] = {
            "by_seed": [float(np.mean(run["values"])) for run in runs],
            "training_s": float(np.mean([run["training_s"] for run in runs])),
            "went": [run.get("went") for run in runs],
            "their_windows": [run["their_windows"] for run in runs if "their_windows" in run],
        }
    cut = windows_of(jobs)
    tests = pairwise_tests(
        PolicyScores("mean_bsld", tuple(values), np.array(list(values.values())), overlap=cut.overlap), seed=0
    )
    rows = {}
    for name, row in values.items():
        pair = None if name == best else tests.pair(name, best)
        rows[name] = {
            "mean_bsld": float(np.mean(row)),
            "ratio": 1.0 if pair is None else pair.ratio,
            "interval": None if pair is None else [pair.low, pair.high],
            "verdict": "best policy" if pair is None else pair.verdict,
            **learned.get(name, {}),
        }
    return {"windows": len(cut), "words": cut.description, "overlap": cut.overlap, "best_rule": best, "rows": rows}


def text(log_results: dict[str, Any]) -> str:
    """A table for each log, and the number of logs on which each algorithm is better or worse than the best policy."""
    parts = []
    for log, log_result in log_results.items():
        rows = []
        for name, row in sorted(log_result["rows"].items(), key=lambda item: item[1]["mean_bsld"]):
            interval = row["interval"]
            seeds = row.get("by_seed", [])
            rows.append(
                [
                    name.upper() if name in LEARNERS else name,
                    f"{row['mean_bsld']:.2f}",
                    f"{row['ratio']:.3f}",
                    "" if interval is None else f"{interval[0]:.2f} to {interval[1]:.2f}",
                    row["verdict"],
                    " ".join(f"{value:.2f}" for value in seeds),
                    f"{row['training_s']:.0f} s" if row.get("training_s") else "",
                ]
            )
        heads = ["", "mean bsld", "ratio to best policy", "95 % interval", "verdict", "by seed", "training"]
        parts.append(f"{log}: {log_result['words']}\n\n{table(heads, rows)}")
        their_windows = {
            name: row["their_windows"] for name, row in log_result["rows"].items() if row.get("their_windows")
        }
        if their_windows:
            summary = ", ".join(
                f"{name.upper()} {' '.join(f'{value:.1f}' for value in values)}"
                for name, values in their_windows.items()
            )
            parts.append(f"RLScheduler's ten windows of {log}, by seed: {summary}")
    lines = []
    for learner in ("look-ahead", *LEARNERS):
        learner_rows = [log_result["rows"][learner] for log_result in log_results.values()]
        ratio = float(np.exp(np.mean([math.log(row["ratio"]) for row in learner_rows])))
        counts = {
            word: sum(row["verdict"] == word for row in learner_rows) for word in ("better", "undecided", "worse")
        }
        below = sum(row["ratio"] < 1 for row in learner_rows)
        lines.append(
            f"{learner}: {ratio:.3f} of the best policy (geometric mean), below it on {below} of "
            f"{len(learner_rows)} logs; " + ", ".join(f"{count} {word}" for word, count in counts.items())
        )
    return "\n\n".join([*parts, "\n".join(lines)])


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def main(arguments: Sequence[str] | None = None) -> int:
    """Train, or print the table. Exit code 0: done; 2: an error occurred."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reproduce.batch_learning")
    parser.add_argument("--data", metavar="DIR", help="folder of real logs (default: KILOWAIT_DATA)")
    parser.add_argument("--train", action="store_true", help="train and evaluate all agents")
    parser.add_argument("--out", default=FOLDER, metavar="DIR", help="folder for trained agents")
    parser.add_argument("--processes", type=int, default=1, metavar="N", help="parallel training runs")
    parser.add_argument(
        "--seconds", type=float, default=math.inf, metavar="N", help="maximum training time of a network"
    )
    parser.add_argument("--only", metavar="A,B", help="learners to train: cma-es, ppo, d3qn, sac, look-ahead, rules")
    parser.add_argument("--agents", metavar="DIR", help="print the table of the agents in this folder")
    parser.add_argument("--json", action="store_true", help="all numbers as JSON instead of tables")
    options = parser.parse_args(arguments)
    try:
        sources = Sources.find(options.data)
        if options.train:
            learners = ("rules", "look-ahead", *LEARNERS) if options.only is None else options.only.split(",")
            train_all(sources, Path(options.out), options.processes, options.seconds, learners, _say)
            return 0
        folder = Path(options.agents or options.out)
        if not folder.is_dir():
            raise InputError(f"the folder {folder} does not exist; create it with --train --out {folder}")
        output = results(sources, _say, folder)
    except KilowaitError as error:
        _say(f"error: {' '.join(str(error).split())}")
        return 2
    sys.stdout.write((json.dumps(output, indent=2) if options.json else text(output)) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
