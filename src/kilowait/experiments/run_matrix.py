"""Run matrix of a comparison: cases x policies x windows, run in one or several processes."""

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
from kilowait.experiments.gpu_options import run_speeds, simulate_arguments
from kilowait.experiments.gpu_power_cap import gpu_cap_share
from kilowait.experiments.policy_configs import policy_and_placement
from kilowait.experiments.policy_names import resolve_policy
from kilowait.experiments.power_context import PowerContext
from kilowait.experiments.predicted_runtimes import USERS_PREFIX, with_requests
from kilowait.experiments.train_power import bind_agent_power
from kilowait.jobs import ExecutionLog, JobTable
from kilowait.policies import simulate
from kilowait.policies.simulation import gpu_settings_for

__all__ = ["ComparisonCase", "Cell", "all_cells", "run_cells", "default_workers"]

Cell = tuple[int, int, int]
"""Indices of the case, the policy and the window."""

JOBS_PER_PROCESS = 2_000_000
"""Jobs to simulate per process: with fewer, starting another process takes longer than it saves."""
JOBS_PER_CHUNK = 50_000
"""Jobs that a process simulates before it returns results."""


@dataclass(frozen=True)
class ComparisonCase:
    """A log on a cluster, cut into windows."""

    trace: str
    """Name of the log."""
    cluster: Cluster
    windows: Windows
    settings: Mapping[str, Any]
    """Keyword arguments of `simulate` except backfill, or the settings of a scenario (with `GpuOptions` as "gpu")."""
    power_context: PowerContext | None = None
    """Power model and signals that the runs are accounted with; None: no energy accounting."""
    settings_dict: Mapping[str, Any] = field(default_factory=dict)
    """The settings as plain data, for the digest."""
    gpu_speeds: str = GpuSettings.gpu_speeds
    """GPU throughputs: the setting `gpu_speeds`, which may name a file."""

    @property
    def digest(self) -> str:
        """Digest of the content of jobs, cluster and settings."""
        digest = hashlib.sha256()
        jobs = self.windows.jobs
        for name in jobs.columns:
            digest.update(name.encode())
            digest.update(np.ascontiguousarray(jobs[name]).data)
        settings = {**self.settings_dict, "labels": {k: list(v) for k, v in jobs.labels.items()}}
        digest.update(json.dumps([repr(self.cluster), settings]).encode())
        speeds_file = Path(self.gpu_speeds)
        if speeds_file.is_file():
            digest.update(speeds_file.read_bytes())
        return digest.hexdigest()


def run_cell(
    jobs: JobTable,
    cluster: Cluster,
    config: PolicyConfig,
    policy: Policy,
    settings: Mapping[str, Any],
    power_context: PowerContext | None = None,
) -> ExecutionLog:
    """Simulate one window; `settings` are those of a scenario, or arguments of `simulate`.

    A clairvoyant policy gets perfect estimates, a policy with the prefix ``users:`` gets the jobs without predictions.
    The log always has the original jobs.
    """
    policy_jobs = with_perfect_estimates(jobs) if config.kind == "clairvoyant" else jobs
    if config.policy.startswith(USERS_PREFIX):
        policy_jobs = with_requests(jobs)
    policy = bind_agent_power(policy, power_context, config.power_controls)
    controls = None
    if power_context is not None and config.power_controls != "none" and gpu_cap_share(config.power_controls) is None:
        controls = power_context.resolve_controls(config.power_controls, policy_jobs)
    if "gpu" in settings:  # the settings of a scenario
        settings = simulate_arguments(
            settings, policy_jobs, cluster, policy, config.backfill, power_context, config.power_controls
        )
    elif power_context is not None and gpu_cap_share(config.power_controls) is not None:
        text = gpu_settings_for(policy, config.backfill, **settings).gpu_speeds
        speeds = run_speeds(text, policy_jobs, cluster, power_context, config.power_controls)
        settings = {**settings, "speeds": speeds}
    log = simulate(policy_jobs, cluster, policy, config.backfill, power_controls=controls, **settings)
    return log if policy_jobs is jobs else replace(log, jobs_table=jobs)


class CellCache(Protocol):
    """Storage of finished cells."""

    def load(self, cell: Cell) -> ExecutionLog | None:
        """The log of a finished cell, or None."""

    def save(self, cell: Cell, log: ExecutionLog) -> None:
        """Store the log of a finished cell."""


def default_workers(cases: Sequence[ComparisonCase], policies: Sequence[PolicyConfig]) -> int:
    """The number of processes: at most one per core, and only as many as the jobs justify."""
    jobs = sum(int(case.windows.size.sum() + case.windows.warmup.sum()) for case in cases) * len(policies)
    return max(1, min(_cores(), jobs // JOBS_PER_PROCESS + 1))


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run_cells(
    cases: Sequence[ComparisonCase],
    configs: Sequence[PolicyConfig],
    *,
    workers: int,
    cache: CellCache | None = None,
    progress: Callable[[Cell, bool], None] | None = None,
    policies: Sequence[Policy] | None = None,
) -> dict[Cell, ExecutionLog]:
    """Run every policy in every window of every case; the logs do not depend on the number of processes.

    `progress` is called with every finished cell, and whether it was run. With a cache, finished cells are read from it
    and written to it. `policies` are the policy objects of the configurations, for one process; None: every process
    resolves them by name.
    """
    logs: dict[Cell, ExecutionLog] = {}

    def finish(cell: Cell, log: ExecutionLog, ran: bool) -> None:
        logs[cell] = log
        if ran and cache is not None:
            cache.save(cell, log)
        if progress is not None:
            progress(cell, ran)

    remaining: list[Cell] = []
    for cell in all_cells(cases, configs):
        cached = None if cache is None else cache.load(cell)
        if cached is None:
            remaining.append(cell)
        else:
            finish(cell, cached, False)
    if workers == 1 or len(remaining) < 2:
        resolved = _resolve_policies(configs) if policies is None else policies
        for cell in remaining:
            finish(cell, _run(cell, cases, configs, resolved), True)
    else:
        for cell, log in _run_in_processes(cases, configs, remaining, workers):
            finish(cell, log, True)
    return logs


def _run(
    cell: Cell, cases: Sequence[ComparisonCase], configs: Sequence[PolicyConfig], policies: Sequence[Policy]
) -> ExecutionLog:
    case, config, policy = cases[cell[0]], configs[cell[1]], policies[cell[1]]
    jobs, settings = case.windows[cell[2]].jobs, dict(case.settings)
    placement = policy_and_placement(config.policy)[1]
    if placement is not None:
        settings["placement"] = placement
    return run_cell(jobs, case.cluster, config, policy, settings, case.power_context)


def _resolve_policies(configs: Sequence[PolicyConfig]) -> list[Policy]:
    return [resolve_policy(policy_and_placement(config.policy)[0]) for config in configs]


def all_cells(cases: Sequence[ComparisonCase], policies: Sequence[PolicyConfig]) -> Iterator[Cell]:
    """All cells, in the order of a comparison folder."""
    for number, case in enumerate(cases):
        for policy in range(len(policies)):
            for window in range(len(case.windows)):
                yield number, policy, window


# -- several processes ---------------------------------------------------------------------------

_worker_inputs: tuple[Sequence[ComparisonCase], Sequence[PolicyConfig], Sequence[Policy]] = ((), (), ())
"""In a worker process: the cases, policy configurations and policies."""


def _initialize_worker(cases: Sequence[ComparisonCase], configs: Sequence[PolicyConfig]) -> None:
    global _worker_inputs  # noqa: PLW0603 - the inputs are sent to a worker process once
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process handles Ctrl-C
    _worker_inputs = (cases, configs, _resolve_policies(configs))


def _run_chunk(cells: Sequence[Cell]) -> list[tuple[Cell, ExecutionLog]] | str:
    """The logs of the cells, without the job tables, which the parent process has; or an error message."""
    cases, configs, policies = _worker_inputs
    try:
        logs = [_run(cell, cases, configs, policies) for cell in cells]
    except KilowaitError as problem:
        return str(problem)
    no_jobs = JobTable(job_id=[], submit_s=[], runtime_s=[], nodes=[])
    return [(cell, replace(log, jobs_table=no_jobs)) for cell, log in zip(cells, logs, strict=True)]


@contextmanager
def _ignore_interrupts() -> Iterator[None]:
    """Processes started in this context ignore Ctrl-C from their very start."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _run_in_processes(
    cases: Sequence[ComparisonCase], configs: Sequence[PolicyConfig], cells: Sequence[Cell], workers: int
) -> Iterator[tuple[Cell, ExecutionLog]]:
    # Spawned, because a child forked from a process with threads may hang.
    context = multiprocessing.get_context("spawn")
    earlier_children = multiprocessing.active_children()
    with ProcessPoolExecutor(workers, context, _initialize_worker, (cases, configs)) as pool:
        try:
            with _ignore_interrupts():
                futures: list[Future[Any]] = [pool.submit(_run_chunk, chunk) for chunk in _chunks(cases, cells)]
            for future in as_completed(futures):
                result = future.result()
                if isinstance(result, str):
                    raise InputError(result)
                for cell, log in result:
                    yield cell, replace(log, jobs_table=cases[cell[0]].windows[cell[2]].jobs)
        except BrokenProcessPool:
            raise InputError(
                "a process of the comparison was killed, perhaps because memory was short; use fewer processes with "
                "--workers"
            ) from None
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in multiprocessing.active_children():
                if process not in earlier_children:
                    process.terminate()
            raise


def _chunks(cases: Sequence[ComparisonCase], cells: Sequence[Cell]) -> Iterator[list[Cell]]:
    chunk: list[Cell] = []
    jobs = 0
    for cell in cells:
        chunk.append(cell)
        windows = cases[cell[0]].windows
        jobs += int(windows.size[cell[2]] + windows.warmup[cell[2]])
        if jobs >= JOBS_PER_CHUNK:
            yield chunk
            chunk, jobs = [], 0
    if chunk:
        yield chunk
