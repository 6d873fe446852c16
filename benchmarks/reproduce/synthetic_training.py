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
from kilowait.experiments.resume import can_resume
from kilowait.experiments.train_rl import RLTraining, train_network
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
    "settings": {**SMALL_STEPS["ppo"], "validate_every": 20},
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
    steps: int = PPO["steps"]
    """Training decisions of a network after behaviour cloning."""

    def __post_init__(self) -> None:
        for what, known, given in (("generator", GENERATORS, self.models), ("learner", ALGOS, self.algos)):
            for name in given:
                if name not in known:
                    raise UnknownNameError(what, name, known)

    @property
    def trained_on(self) -> list[str]:
        """The training data of the agents."""
        return [REAL, *(model + more for model in self.models for more in ("", WITH))]

    def cells(self) -> list[Cell]:
        """Policies, generators and agents, dependencies first."""
        slow_first = sorted(self.models, key=lambda model: model in QUICK)
        fits = [Cell(log, "fit", model) for model in slow_first for log in self.logs]
        agents_ = [
            Cell(log, algo, what, seed)
            for algo in self.algos
            for seed in self.seeds
            for what in self.trained_on
            for log in self.logs
        ]
        return [*fits, *(Cell(log, "rules") for log in self.logs), *agents_]


@dataclass(frozen=True)
class Cell:
    """One unit of work with one output file."""

    log: str
    what: str
    """rules, fit, or a learner."""
    on: str = ""
    """The generator to fit, or the training data of the algorithm."""
    seed: int = 0

    @property
    def model(self) -> str:
        """The required generator; empty: none."""
        return "" if self.on in ("", REAL) else self.on.removesuffix(WITH)

    def file(self, folder: Path) -> Path:
        """The output file: jobs or results."""
        if self.what == "fit":
            return folder / f"{self.log}-{self.on}.parquet"
        return folder / f"{self}.judged.json"

    def __str__(self) -> str:
        named = [self.log, self.what, *([self.on] if self.on else [])]
        return "-".join(named) + (f"-{self.seed}" if self.what not in ("rules", "fit") else "")


def work(cell: Cell, plan: Plan, folder: Path) -> str:
    """Do one cell; what came out, in words."""
    began, used = time.perf_counter(), time.process_time()
    jobs, machine = batch_learning.workload(plan.logs[cell.log])
    parts = split(jobs, validation=0.1)
    if cell.what == "fit":
        made = fit_generator(parts.train, cell.on, seed=0).sample(len(parts.train), seed=0)
        _whole(cell.file(folder), made.to_parquet)
        return _took(cell, began, used)
    path = plan.logs[cell.log]
    if cell.what == "rules":
        found: dict[str, Any] = {
            "values": {rule: batch_learning.judge(path, rule) for rule in batch_learning.RULES}
        }
    else:
        mixture = None
        if cell.model:
            made = JobTable.from_parquet(Cell(cell.log, "fit", cell.model).file(folder))
            mixture = SyntheticMix((made,), SHARE if cell.on.endswith(WITH) else 1.0)
        state = folder / f"{cell}.training"
        if cell.what == "cma-es":
            keeping = agents.CheckpointDir(state, resume=can_resume(state))
            agent, _ = agents.train(
                parts.train, parts.validation, machine, seed=cell.seed, trace=path, synthetic_mix=mixture,
                checkpoint_dir=keeping, **plan.search,
            )  # fmt: skip
            agent.save(folder / f"{cell}.json")
        else:
            how = RLTraining(**{**PPO, "algo": cell.what, "seed": cell.seed, "total_timesteps": plan.steps})
            agent, _ = train_network(
                parts.train, parts.validation, machine, how, folder=state, resume=can_resume(state),
                mixture=mixture,
            )  # fmt: skip
        policy = agent.policy if cell.what == "cma-es" else agent
        found = {"values": batch_learning.judge(path, policy), "cpu_s": time.process_time() - used}
        if cell.what != "cma-es":
            found["steps"] = plan.steps
        else:
            found["went"] = {
                name: agent.provenance[name] for name in ("start", "accepted_step", "fallback_policy")
            }
    told = json.dumps(found) + "\n"
    _whole(cell.file(folder), lambda part: part.write_text(told, encoding="utf-8"))
    return _took(cell, began, used)


def _whole(path: Path, write: Callable[[Path], Any]) -> None:
    """A file that is there whole or not at all: a call that is killed leaves no half of one."""
    part = path.with_name(f".{path.name}.part")
    write(part)
    os.replace(part, path)


def _took(cell: Cell, began: float, used: float) -> str:
    return f"{cell}: {time.perf_counter() - began:.0f} s, {time.process_time() - used:.0f} s of a core"


def run(plan: Plan, folder: Path, processes: int, say: Say) -> list[Cell]:
    """All cells that have left no file yet, side by side; those that could not be done are given back."""
    folder.mkdir(parents=True, exist_ok=True)
    waiting = [cell for cell in plan.cells() if not cell.file(folder).exists()]
    say(f"{len(waiting)} cells in {processes} processes")
    failed: list[Cell] = []
    if not waiting:
        return failed
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # of the processes, which stand side by side
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        running: dict[Future[str], Cell] = {}
        while waiting or running:
            ready = [cell for cell in waiting if _ready(cell, folder)]
            for cell in ready[: 2 * processes - len(running)]:
                waiting.remove(cell)
                running[pool.submit(work, cell, plan, folder)] = cell
            if not running:  # what is left waits for a generator that failed
                break
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                cell = running.pop(future)
                problem = future.exception()
                say(future.result() if problem is None else f"{cell} failed: {problem!r}")
                failed += [] if problem is None else [cell]
    return failed + waiting


def _ready(cell: Cell, folder: Path) -> bool:
    """Whether the generated jobs it is trained on are there."""
    return cell.what == "fit" or not cell.model or Cell(cell.log, "fit", cell.model).file(folder).exists()


def results(sources: Sources, say: Say, folder: Path = Path(FOLDER), **chosen: Any) -> dict[str, Any]:
    """All figures; what is not in the folder is done, one cell after another."""
    plan = planned(sources, **chosen)
    run(plan, folder, 1, say)
    return table_of(plan, folder)


def planned(sources: Sources, logs: Sequence[str] | None = None, **chosen: Any) -> Plan:
    """The plan for these logs, all of them unless named."""
    for log in logs or ():
        if log not in LOGS:
            raise UnknownNameError("log", log, LOGS)
    files = {log: str(sources.file(LOGS[log], "see docs/formats.md")) for log in logs or LOGS}
    return Plan(files, **chosen)


def table_of(plan: Plan, folder: Path) -> dict[str, Any]:
    """The figures of all finished cells, log by log and learner by learner; and which are missing."""
    done = {cell: _read(cell, folder) for cell in plan.cells() if cell.what != "fit"}
    for cell, figures in done.items():
        steps = plan.steps if figures is None else figures.get("steps", plan.steps)
        if steps != plan.steps:
            raise InputError(
                f"{cell.file(folder)} is of {steps:,} steps, and this table of {plan.steps:,}; name --steps {steps}, "
                "or another folder"
            )
    found: dict[str, Any] = {
        "missing": [str(cell) for cell, figures in done.items() if figures is None],
        "seeds": list(plan.seeds),
        "logs": {},
    }
    for log, path in plan.logs.items():
        rules = done[Cell(log, "rules")]
        cut = batch_learning.windows_of(batch_learning.workload(path)[0])
        for algo in plan.algos:
            by_what = {}
            for what in plan.trained_on:
                runs = [done[Cell(log, algo, what, seed)] for seed in plan.seeds]
                there = [figures for figures in runs if figures is not None]
                if there:
                    by_what[what] = there
            if rules is not None and REAL in by_what:
                found["logs"].setdefault(log, {})[algo] = compared(rules["values"], by_what, cut)
    return found


def _read(cell: Cell, folder: Path) -> dict[str, Any] | None:
    file = cell.file(folder)
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else None


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def main(words: Sequence[str] | None = None) -> int:
    """Exit code 0: the table was printed; 1: it was, and cells are missing; 2: it could not be made."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.reproduce synthetic-training",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = partial(str.split, sep=",")
    parser.add_argument("--data", metavar="DIR", help="folder of real logs; else what KILOWAIT_DATA names")
    parser.add_argument("--out", default=FOLDER, metavar="DIR", help=f"folder of finished cells; {FOLDER}")
    parser.add_argument("--logs", type=names, metavar="A,B", help=f"of {', '.join(LOGS)}; else all")
    parser.add_argument("--models", type=names, default=MODELS, metavar="A,B", help=", ".join(GENERATORS))
    parser.add_argument("--algos", type=names, default=ALGOS, metavar="A,B", help="cma-es, ppo")
    parser.add_argument("--seeds", type=names, default=SEEDS, metavar="N,N", help="of trainings; 0")
    parser.add_argument("--steps", type=int, default=PPO["steps"], metavar="N", help="ppo: decisions")
    parser.add_argument("--processes", type=int, default=1, metavar="N", help="cells at a time")
    parser.add_argument("--table", action="store_true", help="print what is there, and train nothing")
    parser.add_argument("--json", action="store_true", help="all numbers as JSON instead of tables")
    given = parser.parse_args(words)
    try:
        if given.processes < 1 or given.steps < 1:
            raise InputError(f"{given.processes} processes, {given.steps} steps; there must be at least 1")
        plan = planned(
            Sources.find(given.data),
            given.logs,
            models=given.models,
            algos=given.algos,
            seeds=tuple(map(int, given.seeds)),
            steps=given.steps,
        )
        if not given.table:
            run(plan, Path(given.out), given.processes, _say)
        found = table_of(plan, Path(given.out))
    except KilowaitError as problem:
        _say(f"error: {' '.join(str(problem).split())}")
        return 2
    sys.stdout.write((json.dumps(found, indent=2) if given.json else text(found)) + "\n")
    return 1 if found["missing"] else 0


if __name__ == "__main__":
    raise SystemExit(main())
