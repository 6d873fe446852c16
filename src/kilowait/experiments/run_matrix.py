"""The cells of a comparison: one contender in one window each, run in as many processes as there are cores."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from kilowait.cluster import Cluster
from kilowait.engine.gpu.settings import GpuSettings
from kilowait.engine.policy import Policy
from kilowait.errors import InputError, KilowaitError
from kilowait.evaluation.bounds import with_perfect_estimates
from kilowait.evaluation.comparison import PolicyConfig, Windows
from kilowait.experiments.gpu_power_cap import cap_of
from kilowait.experiments.gpu_settings import arguments
from kilowait.experiments.policy_configs import policy_and_placement
from kilowait.experiments.power_context import PowerContext
from kilowait.experiments.predict_runtimes import USERS, with_requests
from kilowait.experiments.scenario import resolve_policy
from kilowait.experiments.train_power import bind_agent_power
from kilowait.jobs import ExecutionLog, JobTable
from kilowait.policies import simulate

__all__ = ["ComparisonCase", "Cell", "CellCache", "all_cells", "run_cell", "run_cells", "workers_for"]

Cell = tuple[int, int, int]
"""Numbers of the case, the contender and the window."""

ENOUGH_JOBS = 2_000_000
"""A comparison that simulates fewer jobs than this for each process is done before a second one has started."""
CHUNK_JOBS = 50_000
"""Jobs simulated between two reports of a process."""


@dataclass(frozen=True)
class ComparisonCase:
    """A log on a machine, cut into windows."""

    trace: str
    """Name of the log."""
    cluster: Cluster
    windows: Windows
    settings: Mapping[str, Any]
    """What `simulate` takes by name besides backfill, or the settings of a scenario (with `GpuOptions` as "gpu")."""
    meter: PowerContext | None = None
    """Power model and signals that the runs are accounted with; None: no energy accounting."""
    recorded: Mapping[str, Any] = field(default_factory=dict)
    """The settings as plain data, for the digest."""
    speeds: str = GpuSettings.gpu_speeds
    """The setting `gpu_speeds`."""

    @property
    def digest(self) -> str:
        """Of jobs, machine and settings, by content."""
        found = hashlib.sha256()
        jobs = self.windows.jobs
        for name in jobs.columns:
            found.update(name.encode())
            found.update(np.ascontiguousarray(jobs[name]).data)
        rules = {**self.recorded, "labels": {k: list(v) for k, v in jobs.labels.items()}}
        found.update(json.dumps([repr(self.cluster), rules]).encode())
        speeds = Path(self.speeds)
        if speeds.is_file():
            found.update(speeds.read_bytes())
        return found.hexdigest()


def run_cell(
    jobs: JobTable,
    cluster: Cluster,
    policy: PolicyConfig,
    rule: Policy,
    rules: Mapping[str, Any],
    meter: PowerContext | None = None,
) -> ExecutionLog:
    """Simulate one window; `rules` are those of a scenario, or what `simulate` takes.

    A clairvoyant knows the run times, one of the users' knows no predictions; the log is of the jobs as they are.
    """
    seen = with_perfect_estimates(jobs) if policy.kind == "clairvoyant" else jobs
    if policy.policy.startswith(USERS):
        seen = with_requests(jobs)
    rule = bind_agent_power(rule, meter, policy.power_controls)
    levers = None
    if meter is not None and policy.power_controls != "none" and cap_of(policy.power_controls) is None:
        pulled = meter.pull(policy.power_controls, seen)
        seen, levers = pulled.jobs, pulled.controls
    if "gpu" in rules:  # of a scenario, not yet in simulate's words
        rules = arguments(rules, seen, cluster, rule, policy.backfill, meter, policy.power_controls)
    log = simulate(seen, cluster, rule, policy.backfill, power_controls=levers, **rules)
    return log if seen is jobs else replace(log, jobs_table=jobs)


class CellCache(Protocol):
    """Somewhere finished cells are kept."""

    def load(self, cell: Cell) -> ExecutionLog | None:
        """The log of a finished cell, or None."""

    def save(self, cell: Cell, log: ExecutionLog) -> None:
        """Keep one."""


def workers_for(cases: Sequence[ComparisonCase], policies: Sequence[PolicyConfig]) -> int:
    """As many processes as there are cores and enough work for."""
    jobs = sum(int(case.windows.size.sum() + case.windows.warmup.sum()) for case in cases) * len(policies)
    return max(1, min(_cores(), jobs // ENOUGH_JOBS + 1))


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run_cells(
    cases: Sequence[ComparisonCase],
    contenders: Sequence[PolicyConfig],
    *,
    workers: int,
    store: CellCache | None = None,
    progress: Callable[[Cell, bool], None] | None = None,
    policies: Sequence[Policy] | None = None,
) -> dict[Cell, ExecutionLog]:
    """Every contender in every window of every case; the same logs on any number of processes.

    `progress` hears of every cell when it is there, and whether it had to be run. With a store, finished cells are
    taken from it and put into it. `policies` are the objects behind the configurations, for one process; None: they are
    found by name, in every process.
    """
    found: dict[Cell, ExecutionLog] = {}

    def there(cell: Cell, log: ExecutionLog, ran: bool) -> None:
        found[cell] = log
        if ran and store is not None:
            store.save(cell, log)
        if progress is not None:
            progress(cell, ran)

    wanted: list[Cell] = []
    for cell in all_cells(cases, contenders):
        held = None if store is None else store.load(cell)
        if held is None:
            wanted.append(cell)
        else:
            there(cell, held, False)
    if workers == 1 or len(wanted) < 2:
        rules = _rules(contenders) if policies is None else policies
        for cell in wanted:
            there(cell, _run(cell, cases, contenders, rules), True)
    else:
        for cell, log in _in_processes(cases, contenders, wanted, workers):
            there(cell, log, True)
    return found


def _run(
    cell: Cell,
    cases: Sequence[ComparisonCase],
    policies: Sequence[PolicyConfig],
    rules: Sequence[Policy],
) -> ExecutionLog:
    case, who, window = cases[cell[0]], cell[1], cell[2]
    jobs, settings = case.windows[window].jobs, dict(case.settings)
    placement = policy_and_placement(policies[who].policy)[1]
    if placement is not None:
        settings["placement"] = placement
    return run_cell(jobs, case.cluster, policies[who], rules[who], settings, case.meter)


def _rules(policies: Sequence[PolicyConfig]) -> list[Policy]:
    return [resolve_policy(policy_and_placement(contender.policy)[0]) for contender in policies]


def all_cells(cases: Sequence[ComparisonCase], policies: Sequence[PolicyConfig]) -> Iterator[Cell]:
    """In the order in which a comparison folder counts them."""
    for number, case in enumerate(cases):
        for contender in range(len(policies)):
            for window in range(len(case.windows)):
                yield number, contender, window


# -- several processes ---------------------------------------------------------------------------

_given: tuple[Sequence[ComparisonCase], Sequence[PolicyConfig], Sequence[Policy]] = ((), (), ())
"""In a worker: what it was started with."""


def _begin(cases: Sequence[ComparisonCase], policies: Sequence[PolicyConfig]) -> None:
    global _given  # noqa: PLW0603 - a worker process is handed its work once
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to answer
    _given = (cases, policies, _rules(policies))


def _run_chunk(cells: Sequence[Cell]) -> list[tuple[Cell, ExecutionLog]] | str:
    """Logs without their jobs, which the parent has; or what went wrong, in words."""
    cases, contenders, rules = _given
    try:
        logs = [_run(cell, cases, contenders, rules) for cell in cells]
    except KilowaitError as problem:
        return str(problem)
    none = JobTable(job_id=[], submit_s=[], runtime_s=[], nodes=[])
    return [(cell, replace(log, jobs_table=none)) for cell, log in zip(cells, logs, strict=True)]


@contextmanager
def _deaf() -> Iterator[None]:
    """Processes started in here do not hear Ctrl-C, not even before they have begun."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _in_processes(
    cases: Sequence[ComparisonCase], policies: Sequence[PolicyConfig], wanted: Sequence[Cell], workers: int
) -> Iterator[tuple[Cell, ExecutionLog]]:
    # Not forked: a child forked from a process with threads may hang.
    context = multiprocessing.get_context("spawn")
    others = multiprocessing.active_children()
    with ProcessPoolExecutor(workers, context, _begin, (cases, policies)) as pool:
        try:
            with _deaf():
                asked: list[Future[Any]] = [pool.submit(_run_chunk, one) for one in _chunks(cases, wanted)]
            for done in as_completed(asked):
                answer = done.result()
                if isinstance(answer, str):
                    raise InputError(answer)
                for cell, log in answer:
                    yield cell, replace(log, jobs_table=cases[cell[0]].windows[cell[2]].jobs)
        except BrokenProcessPool:
            raise InputError(
                "a process of the comparison was ended from outside, perhaps for want of memory; "
                "take fewer with --workers"
            ) from None
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in multiprocessing.active_children():
                if process not in others:
                    process.terminate()
            raise


def _chunks(cases: Sequence[ComparisonCase], wanted: Sequence[Cell]) -> Iterator[list[Cell]]:
    chunk: list[Cell] = []
    jobs = 0
    for cell in wanted:
        chunk.append(cell)
        windows = cases[cell[0]].windows
        jobs += int(windows.size[cell[2]] + windows.warmup[cell[2]])
        if jobs >= CHUNK_JOBS:
            yield chunk
            chunk, jobs = [], 0
    if chunk:
        yield chunk
