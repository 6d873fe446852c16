"""Agents trained on synthetic jobs and evaluated on real jobs: the value of a generator where no log is available.

On each log agents are trained on three kinds of data: the real training jobs (the first 60 %), as many jobs of a
generator fitted only to these jobs, and both, half of the windows each. All use the next 10 % for validation and the
same 60 windows of 1,024 real jobs in the last 30 % for testing: EASY, user estimates, mean bounded slowdown, as in
`benchmarks.reproduce.batch_learning`. An agent trained only on synthetic jobs has not seen the real training jobs:
its user history contains only the real validation jobs.

CMA-ES (cma-es) has its default settings; networks (ppo) clone SAF and then learn for a fixed number of decisions.
Finished cells are saved in a folder and a second call computes missing ones, so it can be interrupted at any time.

    python -m benchmarks.reproduce synthetic-training --out runs/synthetic-training --processes 16
    python -m benchmarks.reproduce synthetic-training --logs Theta --models copula --algos cma-es --seeds 0
    python -m benchmarks.reproduce synthetic-training --out runs/synthetic-training --table
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from benchmarks.reproduce import batch_learning
from benchmarks.reproduce.data_paths import Sources
from benchmarks.reproduce.gpu_learning import SMALL_STEPS
from benchmarks.reproduce.synthetic_table import compared, text
from kilowait import agents
from kilowait.agents.training_data import SyntheticMix
from kilowait.errors import InputError, KilowaitError, UnknownNameError
from kilowait.evaluation.comparison import split
from kilowait.experiments.training.network import train_network
from kilowait.experiments.training.resume_checks import can_resume
from kilowait.experiments.training.rl_settings import RLTraining
from kilowait.jobs import JobTable
from kilowait.synth import GENERATORS, fit_generator

__all__ = ["Cell", "Plan", "results", "run", "text"]

LOGS = {name: batch_learning.LOGS[name] for name in ("SDSC-SP2", "HPC2N", "Theta", "KTH-SP2")}
MODELS = tuple(GENERATORS)
ALGOS = ("cma-es", "ppo")
SEEDS = (0,)
FOLDER = "runs/synthetic-training"
REAL, WITH = "real", "+real"
"""Training data of a cell: real, MODEL, or MODEL+real."""
SHARE = 0.5
"""Share of the windows with synthetic jobs, where both kinds are used."""
PPO: dict[str, Any] = {
    **batch_learning.RECIPE,
    "total_timesteps": 1_000_000,
    "env_threads": 1,
    "hyperparameters": {**SMALL_STEPS["ppo"], "validate_every": 20},
}
"""Settings of all cells."""
QUICK = ("bootstrap", "copula")
"""Generators that are fitted in seconds; the others are started first."""
Say = Callable[[str], None]


@dataclass(frozen=True)
class Plan:
    """The selection of cells."""

    logs: dict[str, str]
    """Name to file."""
    models: Sequence[str] = MODELS
    algos: Sequence[str] = ALGOS
    seeds: Sequence[int] = SEEDS
    search: dict[str, Any] = field(default_factory=dict)
    """Overrides of the CMA-ES settings, for tests."""
    steps: int = PPO["total_timesteps"]
    """Training decisions of a network after behaviour cloning."""

    def __post_init__(self) -> None:
        for kind, known, names in (("generator", GENERATORS, self.models), ("learner", ALGOS, self.algos)):
            for name in names:
                if name not in known:
                    raise UnknownNameError(kind, name, known)

    @property
    def trained_on(self) -> list[str]:
        """The training data of the agents."""
        return [REAL, *(model + suffix for model in self.models for suffix in ("", WITH))]

    def cells(self) -> list[Cell]:
        """Policies, generators and agents, dependencies first."""
        slow_first = sorted(self.models, key=lambda model: model in QUICK)
        fits = [Cell(log, "fit", model) for model in slow_first for log in self.logs]
        agent_cells = [
            Cell(log, algo, training_data, seed)
            for algo in self.algos
            for seed in self.seeds
            for training_data in self.trained_on
            for log in self.logs
        ]
        return [*fits, *(Cell(log, "rules") for log in self.logs), *agent_cells]


@dataclass(frozen=True)
class Cell:
    """One unit of work with one output file."""

    log: str
    task: str
    """rules, fit, or an algorithm."""
    on: str = ""
    """The generator to fit, or the training data of the algorithm."""
    seed: int = 0

    @property
    def model(self) -> str:
        """The required generator; empty: none."""
        return "" if self.on in ("", REAL) else self.on.removesuffix(WITH)

    def file(self, folder: Path) -> Path:
        """The output file: jobs or results."""
        if self.task == "fit":
            return folder / f"{self.log}-{self.on}.parquet"
        return folder / f"{self}.judged.json"

    def __str__(self) -> str:
        parts = [self.log, self.task, *([self.on] if self.on else [])]
        return "-".join(parts) + (f"-{self.seed}" if self.task not in ("rules", "fit") else "")


def run_cell(cell: Cell, plan: Plan, folder: Path) -> str:
    """Compute one cell; return a progress message."""
    start_s, cpu_start_s = time.perf_counter(), time.process_time()
    jobs, machine = batch_learning.workload(plan.logs[cell.log])
    parts = split(jobs, validation=0.1)
    if cell.task == "fit":
        synthetic_jobs = fit_generator(parts.train, cell.on, seed=0).sample(len(parts.train), seed=0)
        _write_atomically(cell.file(folder), synthetic_jobs.to_parquet)
        return _duration(cell, start_s, cpu_start_s)
    path = plan.logs[cell.log]
    if cell.task == "rules":
        output: dict[str, Any] = {
            "values": {rule: batch_learning.evaluate(path, rule) for rule in batch_learning.RULES}
        }
    else:
        mix = None
        if cell.model:
            synthetic_jobs = JobTable.from_parquet(Cell(cell.log, "fit", cell.model).file(folder))
            mix = SyntheticMix((synthetic_jobs,), SHARE if cell.on.endswith(WITH) else 1.0)
        state = folder / f"{cell}.training"
        if cell.task == "cma-es":
            checkpoints = agents.CheckpointDir(state, resume=can_resume(state))
            settings = agents.BatchSearchSettings(seed=cell.seed, trace=path, **plan.search)
            objective = agents.BatchObjective(parts.train, parts.validation, machine, settings, synthetic_mix=mix)
            agent, _ = agents.train_linear_agent(objective, checkpoint_dir=checkpoints)
            agent.save(folder / f"{cell}.json")
        else:
            training = RLTraining(**{**PPO, "algo": cell.task, "seed": cell.seed, "total_timesteps": plan.steps})
            agent, _ = train_network(
                parts.train, parts.validation, machine, training, folder=state, resume=can_resume(state),
                mixture=mix,
            )  # fmt: skip
        policy = agent.policy if cell.task == "cma-es" else agent
        output = {"values": batch_learning.evaluate(path, policy), "cpu_s": time.process_time() - cpu_start_s}
        if cell.task != "cma-es":
            output["steps"] = plan.steps
        else:
            output["went"] = {name: agent.provenance[name] for name in ("start", "accepted_step", "fallback_policy")}
    content = json.dumps(output) + "\n"
    _write_atomically(cell.file(folder), lambda part: part.write_text(content, encoding="utf-8"))
    return _duration(cell, start_s, cpu_start_s)


def _write_atomically(path: Path, write: Callable[[Path], Any]) -> None:
    """Write a file atomically, so that a killed call leaves no partial file."""
    part = path.with_name(f".{path.name}.part")
    write(part)
    os.replace(part, path)


def _duration(cell: Cell, start_s: float, cpu_start_s: float) -> str:
    return f"{cell}: {time.perf_counter() - start_s:.0f} s, {time.process_time() - cpu_start_s:.0f} s of a core"


def run(plan: Plan, folder: Path, processes: int, say: Say) -> list[Cell]:
    """Compute all cells without a file in parallel; return those that failed."""
    folder.mkdir(parents=True, exist_ok=True)
    pending = [cell for cell in plan.cells() if not cell.file(folder).exists()]
    say(f"{len(pending)} cells in {processes} processes")
    failed: list[Cell] = []
    if not pending:
        return failed
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # one thread per process, because processes run in parallel
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        running: dict[Future[str], Cell] = {}
        while pending or running:
            ready = [cell for cell in pending if _ready(cell, folder)]
            for cell in ready[: 2 * processes - len(running)]:
                pending.remove(cell)
                running[pool.submit(run_cell, cell, plan, folder)] = cell
            if not running:  # the remaining cells need a generator that failed
                break
            completed, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in completed:
                cell = running.pop(future)
                error = future.exception()
                say(future.result() if error is None else f"{cell} failed: {error!r}")
                failed += [] if error is None else [cell]
    return failed + pending


def _ready(cell: Cell, folder: Path) -> bool:
    """Whether the synthetic jobs that the cell needs exist."""
    return cell.task == "fit" or not cell.model or Cell(cell.log, "fit", cell.model).file(folder).exists()


def results(sources: Sources, say: Say, folder: Path = Path(FOLDER), **options_of_plan: Any) -> dict[str, Any]:
    """All results; missing cells are computed one after another."""
    plan = make_plan(sources, **options_of_plan)
    run(plan, folder, 1, say)
    return table_of(plan, folder)


def make_plan(sources: Sources, logs: Sequence[str] | None = None, **options_of_plan: Any) -> Plan:
    """The plan for these logs; None: all logs."""
    for log in logs or ():
        if log not in LOGS:
            raise UnknownNameError("log", log, LOGS)
    files = {log: str(sources.file(LOGS[log], "see docs/formats.md")) for log in logs or LOGS}
    return Plan(files, **options_of_plan)


def table_of(plan: Plan, folder: Path) -> dict[str, Any]:
    """Results of all finished cells by log and algorithm, and the missing cells."""
    saved = {cell: _read(cell, folder) for cell in plan.cells() if cell.task != "fit"}
    for cell, metrics in saved.items():
        steps = plan.steps if metrics is None else metrics.get("steps", plan.steps)
        if steps != plan.steps:
            raise InputError(
                f"{cell.file(folder)} is of {steps:,} steps, and this table of {plan.steps:,}; name --steps {steps}, "
                "or another folder"
            )
    output: dict[str, Any] = {
        "missing": [str(cell) for cell, metrics in saved.items() if metrics is None],
        "seeds": list(plan.seeds),
        "logs": {},
    }
    for log, path in plan.logs.items():
        policies = saved[Cell(log, "rules")]
        cut = batch_learning.windows_of(batch_learning.workload(path)[0])
        for algo in plan.algos:
            by_training_data = {}
            for training_data in plan.trained_on:
                runs = [saved[Cell(log, algo, training_data, seed)] for seed in plan.seeds]
                finished = [metrics for metrics in runs if metrics is not None]
                if finished:
                    by_training_data[training_data] = finished
            if policies is not None and REAL in by_training_data:
                output["logs"].setdefault(log, {})[algo] = compared(policies["values"], by_training_data, cut)
    return output


def _read(cell: Cell, folder: Path) -> dict[str, Any] | None:
    file = cell.file(folder)
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else None


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0: the table was printed; 1: it was printed with missing cells; 2: an error occurred."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.reproduce synthetic-training",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = partial(str.split, sep=",")
    parser.add_argument("--data", metavar="DIR", help="folder of real logs (default: KILOWAIT_DATA)")
    parser.add_argument("--out", default=FOLDER, metavar="DIR", help=f"folder of finished cells; {FOLDER}")
    parser.add_argument("--logs", type=names, metavar="A,B", help=f"{', '.join(LOGS)} (default: all)")
    parser.add_argument("--models", type=names, default=MODELS, metavar="A,B", help=", ".join(GENERATORS))
    parser.add_argument("--algos", type=names, default=ALGOS, metavar="A,B", help="cma-es, ppo")
    parser.add_argument("--seeds", type=names, default=SEEDS, metavar="N,N", help="seeds of training (default: 0)")
    parser.add_argument(
        "--steps", type=int, default=PPO["total_timesteps"], metavar="N", help="ppo: training decisions"
    )
    parser.add_argument("--processes", type=int, default=1, metavar="N", help="parallel processes")
    parser.add_argument("--table", action="store_true", help="print the finished cells without training")
    parser.add_argument("--json", action="store_true", help="all numbers as JSON instead of tables")
    options = parser.parse_args(arguments)
    try:
        if options.processes < 1 or options.steps < 1:
            raise InputError(f"{options.processes} processes, {options.steps} steps; there must be at least 1")
        plan = make_plan(
            Sources.find(options.data),
            options.logs,
            models=options.models,
            algos=options.algos,
            seeds=tuple(map(int, options.seeds)),
            steps=options.steps,
        )
        if not options.table:
            run(plan, Path(options.out), options.processes, _say)
        output = table_of(plan, Path(options.out))
    except KilowaitError as error:
        _say(f"error: {' '.join(str(error).split())}")
        return 2
    sys.stdout.write((json.dumps(output, indent=2) if options.json else text(output)) + "\n")
    return 1 if output["missing"] else 0


if __name__ == "__main__":
    raise SystemExit(main())
