"""Learning on a mixed GPU cluster: D3QN, SAC, PPO and CMA-ES against FCFS, SJF, SRTF and LAS.

The jobs of each load are split by time: 60 % training, 20 % validation, 20 % test. On the training set every policy is
tried with every placement and GPU-type order, with and without migration, and evaluated in its best configuration.
Windows begin on the empty cluster and run until their last job has finished, and all jobs count; utilization is over
the time in which jobs arrive. The result of an algorithm is the mean over its seeds, window by window.

Training is separate from the table, for a machine with more cores: each run saves its agent and results in a folder.

    python -m benchmarks.reproduce.gpu_learning --train --out runs/gpu-learning --processes 16 --minutes 8
    python -m benchmarks.reproduce.gpu_learning --agents runs/gpu-learning
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import kilowait as kw
from benchmarks.reproduce.data_paths import Sources
from benchmarks.reproduce.parallel_tasks import run_parallel
from benchmarks.reproduce.text_tables import table
from kilowait.agents.evolution.gpu import GpuSearchSettings, best_policy
from kilowait.cluster import Cluster
from kilowait.errors import InputError, KilowaitError
from kilowait.evaluation import by_priority
from kilowait.evaluation.comparison import split
from kilowait.evaluation.comparison.bootstrap import ratio_interval
from kilowait.experiments.gpu_options import run_speeds, simulate_arguments
from kilowait.experiments.settings import GpuOptions
from kilowait.experiments.training.evaluate import GPU_POLICIES
from kilowait.experiments.training.linear import GpuTrainer, GpuTraining
from kilowait.experiments.training.network import train_network
from kilowait.experiments.training.rl_settings import RLTraining
from kilowait.experiments.training.trainer import TrainingRun
from kilowait.jobs import ExecutionLog, JobTable
from kilowait.rng import stream
from kilowait.synth import gpu_workload
from kilowait.units import format_duration

__all__ = ["evaluate", "evaluate_policies", "results", "text", "train"]

CLUSTER = "gpu-mixed"
LOADS = (0.7, 0.9, 1.1)
SEEDS = (1, 2, 3)
NETWORKS = ("d3qn", "sac", "ppo")
LEARNERS = (*NETWORKS, "cma-es")
JOBS, JOBS_SEED, WINDOW_JOBS = 100_000, 11, 1024
STEPS = {"d3qn": 200_000, "sac": 200_000, "ppo": 500_000}
"""Training decisions of a network after its warm start, unless the time limit ends training earlier."""
FOLDER = "runs/gpu-learning"
FIGURES = ("mean_jct_s", "makespan_s", "gpu_utilization", "flops_utilization", "high_jct_s", "low_jct_s")
Say = Callable[[str], None]

RECIPE: dict[str, Any] = {
    "num_envs": 32,
    "episode_jobs": 1024,
    "queue_window": 32,
    "windows": 12,
    "window_jobs": 512,
    "expert": "srtf",
    "expert_steps": 60_000,
}
"""Settings of all networks and loads: behaviour cloning of SRTF, then RL; the best on validation jobs is kept."""
SMALL_STEPS: dict[str, dict[str, Any]] = {
    "d3qn": {"learning_rate": 1e-4, "buffer_size": 30_000, "learning_starts": 2_000, "validate_every": 60},
    "sac": {
        "learning_rate": 3e-5,
        "buffer_size": 30_000,
        "learning_starts": 2_000,
        "validate_every": 60,
        "initial_ent_coef": 0.02,
        "target_entropy": 0.05,
    },
    "ppo": {"learning_rate": 3e-4, "ent_coef": 0.002, "validate_every": 8},
}
"""Small updates, so that the first updates do not destroy the cloned behaviour."""
NEVER = 1_000_000_000
SEARCH: dict[str, Any] = {"generations": 30, "windows": 10, "window_jobs": WINDOW_JOBS}


def workload(load: float, jobs: int = JOBS) -> JobTable:
    """The jobs of a load; run times depend on the type of GPU."""
    return gpu_workload(jobs, Cluster.preset(CLUSTER), load=load, seed=JOBS_SEED)


def train(
    load: float,
    algo: str,
    seed: int,
    folder: Path,
    *,
    steps: int | None = None,
    seconds: float = math.inf,
    device: str = "cpu",
    jobs: int = JOBS,
    **overrides: Any,
) -> Path:
    """Train one agent and return its file in the folder.

    Args:
        load: offered load of the jobs.
        algo: one of `LEARNERS`.
        seed: seed of the training.
        folder: folder of the agent's file.
        steps: training decisions of a network; None: those of `STEPS`.
        seconds: time limit of a network; the best network on the validation jobs is returned.
        device: device of a network.
        jobs: number of jobs of all splits together.
        overrides: fields of `RLTraining` or `GpuTraining` that differ from the settings here.
    """
    parts, cluster = split(workload(load, jobs)), Cluster.preset(CLUSTER)
    stem = folder / f"{load}-{algo}-{seed}"
    folder.mkdir(parents=True, exist_ok=True)
    if algo == "cma-es":
        settings = GpuTraining(**{"seed": seed, **SEARCH, **overrides})
        agent, _ = GpuTrainer(settings).train(workload(load, jobs), cluster, TrainingRun(f"load {load}"))
        path: Path = agent.save(stem.with_name(stem.name + ".json"))
        return path
    hyperparameters = {**SMALL_STEPS[algo], "checkpoint_every": NEVER, **overrides.pop("hyperparameters", {})}
    training = RLTraining(
        **{
            **RECIPE,
            "algo": algo,
            "seed": seed,
            "total_timesteps": STEPS[algo] if steps is None else steps,
            "time_limit_s": seconds,
            "device": device,
            "hyperparameters": hyperparameters,
            **overrides,
        }
    )
    state = stem.with_name(stem.name + ".training")
    train_network(parts.train, parts.validation, cluster, training, folder=state)
    return (state / "agent.pt").replace(stem.with_name(stem.name + ".pt"))


def evaluate(load: float, agent: Path, *, jobs: int = JOBS, window_jobs: int = WINDOW_JOBS) -> dict[str, Any]:
    """Metrics of an agent on the test jobs of a load by window; also saved beside the agent's file."""
    output = _figures(kw.load_agent(agent), {}, _windows(workload(load, jobs), window_jobs))
    _write(agent.with_suffix(".judged.json"), output)
    return output


def evaluate_policies(load: float, folder: Path, *, jobs: int = JOBS, window_jobs: int = WINDOW_JOBS) -> dict[str, Any]:
    """Metrics of every policy in its best configuration, with and without migration, on the test jobs; also saved."""
    cluster, all_jobs = Cluster.preset(CLUSTER), workload(load, jobs)
    windows = _windows(all_jobs, window_jobs)
    output = {}
    for rule in GPU_POLICIES:
        for migrate in (False, True):
            settings = GpuSearchSettings(
                seed=0, window_jobs=window_jobs, speeds=lambda some: run_speeds("auto", some, cluster)
            )
            best = best_policy(split(all_jobs).train, cluster, settings, policies=(rule,), migrate=(migrate,))
            types, placement = best.provenance["gpu_type_order"], best.provenance["placement"]
            name = f"{rule}, {types}, {placement}{', moved' if migrate else ''}"
            options_of_run = {"gpu_type_order": types, "placement": placement, "migrate": migrate}
            output[name] = _figures(rule, options_of_run, windows)
    _write(folder / f"{load}-rules.judged.json", output)
    return output


def results(
    sources: Sources | None, say: Say, folder: Path = Path(FOLDER), loads: Sequence[float] = LOADS
) -> dict[str, Any]:
    """Results from the folder; missing agents are trained one after another, which takes hours."""
    for load, algo, seed in all_tasks(loads):
        if not _result_file(folder, load, algo, seed).exists():
            say(f"{folder} has no results of {algo}, load {load}, seed {seed}: training with one process")
            run_task(load, algo, seed, folder, math.inf, "cpu")
    output: dict[str, Any] = {"loads": {}}
    for load in loads:
        rules = json.loads(_result_file(folder, load, "rules", 0).read_text(encoding="utf-8"))
        learned = {}
        for algo in LEARNERS:
            files = [_result_file(folder, load, algo, seed) for seed in SEEDS]
            runs = [json.loads(file.read_text(encoding="utf-8")) for file in files]
            learned[algo] = {name: np.mean([run[name] for run in runs], axis=0).tolist() for name in FIGURES}
            learned[algo]["by_seed"] = [float(np.mean(run["mean_jct_s"])) for run in runs]
        output["loads"][str(load)] = _compared(rules, learned)
    return output


def _compared(rules: dict[str, Any], learned: dict[str, Any]) -> dict[str, Any]:
    """Mean metrics, and ratios of the mean completion time to the best policy with and without migration."""
    rows = {**rules, **learned}
    mean = {name: float(np.mean(row["mean_jct_s"])) for name, row in rows.items()}
    best = min(rules, key=lambda name: mean[name])
    best_unmoved = min((name for name in rules if not name.endswith("moved")), key=lambda name: mean[name])

    def ratio(name: str, other: str) -> list[float]:
        ours, theirs = rows[name]["mean_jct_s"], rows[other]["mean_jct_s"]
        interval = ratio_interval(ours, theirs, random=stream(0, "gpu learning"))
        return [mean[name] / mean[other], *map(float, interval)]

    return {
        "windows": len(rules[best]["mean_jct_s"]),
        "best_rule": best,
        "best_rule_unmoved": best_unmoved,
        "rows": {
            name: {
                **{figure: float(np.mean(row[figure])) for figure in FIGURES},
                "learned": name in learned,
                "by_seed": row.get("by_seed"),
                "ratio": ratio(name, best),
                "ratio_unmoved": ratio(name, best_unmoved),
            }
            for name, row in rows.items()
        },
    }


def text(output: dict[str, Any]) -> str:
    """The tables, each followed by the comparison of the agents with the best policy."""
    parts = []
    for load, load_result in output["loads"].items():
        heads = ["", "mean JCT", "of the best rule", "95 % interval", "makespan", "GPUs held", "by FLOPS"]
        heads += ["JCT, priority 1", "priority 0"]
        rows = []
        for name, row in sorted(load_result["rows"].items(), key=lambda item: item[1]["mean_jct_s"]):
            value, low, high = row["ratio"]
            rows.append(
                [
                    name.upper() if row["learned"] else name,
                    format_duration(row["mean_jct_s"]),
                    f"{value:.3f}",
                    "" if name == load_result["best_rule"] else f"{low:.3f} to {high:.3f}",
                    format_duration(row["makespan_s"]),
                    f"{row['gpu_utilization']:.1%}",
                    f"{row['flops_utilization']:.1%}",
                    format_duration(row["high_jct_s"]),
                    format_duration(row["low_jct_s"]),
                ]
            )
        head = f"load {load}: {load_result['windows']} windows of later jobs, all counted"
        parts.append("\n".join([head, "", table(heads, rows), "", *_verdicts(load, load_result)]))
    return "\n\n".join(parts)


def _verdicts(load: str, load_result: dict[str, Any]) -> list[str]:
    lines = []
    for key, rule in (("ratio", load_result["best_rule"]), ("ratio_unmoved", load_result["best_rule_unmoved"])):
        summary = [
            f"{name.upper()} {_verdict(*row[key])}" for name, row in load_result["rows"].items() if row["learned"]
        ]
        lines.append(f"load {load}, against {rule}: {', '.join(summary)}")
    return lines


def _verdict(value: float, low: float, high: float) -> str:
    """The significance of a ratio as text.

    >>> _verdict(0.98, 0.97, 0.99), _verdict(1.0, 0.99, 1.01), _verdict(1.1, 1.02, 1.2)
    ('is better (0.980)', 'is as good (1.000)', 'is NOT as good (1.100)')
    """
    if low == high == value == 1.0:
        return "is that rule"
    arguments = "is better" if high < 1 else "is NOT as good" if low > 1 else "is as good"
    return f"{arguments} ({value:.3f})"


# -- parallel training ----------------------------------------------------------------------------------------------


def all_tasks(loads: Sequence[float] = LOADS) -> list[tuple[float, str, int]]:
    """All tasks: load, algorithm (or "rules") and seed; the longest first."""
    learned = [(load, algo, seed) for algo in ("cma-es", *NETWORKS) for load in loads for seed in SEEDS]
    return [*((load, "rules", 0) for load in loads), *learned]


def run_task(load: float, algo: str, seed: int, folder: Path, seconds: float, device: str) -> str:
    """Run one task; return a progress message."""
    start_s = time.perf_counter()
    if algo == "rules":
        evaluate_policies(load, folder)
        return f"load {load}, rules: {time.perf_counter() - start_s:.0f} s"
    agent = train(load, algo, seed, folder, seconds=seconds, device=device)
    trained_s = time.perf_counter()
    output = evaluate(load, agent)
    return (
        f"load {load}, {algo}, seed {seed}: mean JCT {format_duration(float(np.mean(output['mean_jct_s'])))}; training "
        f"{trained_s - start_s:.0f} s, evaluation {time.perf_counter() - trained_s:.0f} s"
    )


def train_all(folder: Path, processes: int, minutes: float, device: str, say: Say) -> None:
    """Run all tasks in parallel; networks share the time left after compilation, with a reserve of a third."""
    ends = time.perf_counter() + 60 * minutes
    folder.mkdir(parents=True, exist_ok=True)
    say("compiling, once")
    scratch = folder / "compiled"
    tiny: dict[str, Any] = {"windows": 2, "window_jobs": 40, "episode_jobs": 40, "expert_steps": 512, "num_envs": 4}
    agent = train(0.9, "ppo", 0, scratch, steps=512, jobs=1000, **tiny)
    evaluate(0.9, agent, jobs=1000, window_jobs=100)
    kw.simulate(workload(0.9, 100), Cluster.preset(CLUSTER), "las", "skip")
    todo = all_tasks()
    rounds = math.ceil(len(todo) / processes)
    seconds = max(20.0, (ends - time.perf_counter()) / 1.5 / rounds)
    say(f"{len(todo)} training runs in {processes} processes, each network for {seconds:.0f} s at most")
    run_parallel(run_task, [(*task, folder, seconds, device) for task in todo], processes, say)


def _windows(jobs: JobTable, window_jobs: int) -> list[JobTable]:
    later = split(jobs).test
    return [later[i * window_jobs : (i + 1) * window_jobs] for i in range(len(later) // window_jobs)]


def _figures(policy: Any, options_of_run: dict[str, Any], windows: Sequence[JobTable]) -> dict[str, list[float]]:
    """The metrics `FIGURES` by window; high and low are the jobs of priority 1 and 0."""
    output: dict[str, list[float]] = {name: [] for name in FIGURES}
    for jobs in windows:
        log, measured = _simulate_to_end(policy, jobs, Cluster.preset(CLUSTER), **options_of_run)
        classes = {row["priority"]: float(row["mean_jct_s"]) for row in by_priority(log)}
        measured |= {"high_jct_s": classes.get(1.0, math.nan), "low_jct_s": classes.get(0.0, math.nan)}
        for name in FIGURES:
            output[name].append(measured[name])
    return output


def _simulate_to_end(
    policy: Any, jobs: JobTable, cluster: Cluster, *, placement: str | None = None, **options: Any
) -> tuple[ExecutionLog, dict[str, float]]:
    """Simulate a policy until all jobs end; the log and its `gpu_metrics`. `options`: fields of `GpuOptions`.

    Utilization is over the time in which jobs arrive, which is the same for all policies.
    """
    fixed: dict[str, Any] = {"at_limit": "extend", "on_oversized": "drop", "dependencies": False}
    settings = simulate_arguments(
        {**fixed, "placement": placement, "gpu": GpuOptions(**options)}, jobs, cluster, policy, "skip"
    )
    log = kw.simulate(jobs, cluster, policy, "skip", **settings)
    first_s, last_s = float(jobs["submit_s"].min()), float(jobs["submit_s"].max())
    horizon = (first_s, last_s) if last_s > first_s else None
    return log, kw.gpu_metrics(log, cluster, settings["speeds"], horizon_s=horizon)


def _result_file(folder: Path, load: float, algo: str, seed: int) -> Path:
    return folder / (f"{load}-rules.judged.json" if algo == "rules" else f"{load}-{algo}-{seed}.judged.json")


def _write(path: Path, output: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(output) + "\n", encoding="utf-8")


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def main(arguments: Sequence[str] | None = None) -> int:
    """Train, or print the table. Exit code 0: done; 2: an error occurred."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reproduce.gpu_learning")
    parser.add_argument("--train", action="store_true", help="train and evaluate all agents")
    parser.add_argument("--out", default=FOLDER, metavar="DIR", help="folder for trained agents")
    parser.add_argument("--processes", type=int, default=1, metavar="N", help="parallel training runs")
    parser.add_argument("--minutes", type=float, default=60.0, metavar="N", help="approximate total time")
    parser.add_argument("--device", default="cpu", help="cpu or cuda, for networks")
    parser.add_argument("--agents", metavar="DIR", help="print the table of the agents in this folder")
    parser.add_argument("--json", action="store_true", help="all numbers as JSON instead of tables")
    options = parser.parse_args(arguments)
    try:
        if options.train:
            train_all(Path(options.out), options.processes, options.minutes, options.device, _say)
            return 0
        folder = Path(options.agents or options.out)
        if not folder.is_dir():
            raise InputError(f"the folder {folder} does not exist; create it with --train --out {folder}")
        output = results(None, _say, folder)
    except KilowaitError as error:
        _say(f"error: {' '.join(str(error).split())}")
        return 2
    sys.stdout.write((json.dumps(output, indent=2) if options.json else text(output)) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
