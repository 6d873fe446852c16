"""Run matrix of a comparison: cases x policies x windows, in one or several processes, and the cache of finished cells.

A cell is one run. The cache lets an interrupted comparison resume. The key of a cell is a digest of everything it
depends on: jobs, cluster, policy, window, settings and the source code of the simulator. A changed comparison therefore
runs only the cells that are new.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import shutil
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import kilowait
from kilowait.checkpoint import StateFormat
from kilowait.cluster import Cluster
from kilowait.engine.gpu.settings import GpuSettings
from kilowait.engine.policy import Policy
from kilowait.engine.run_monitor import monitored_runs
from kilowait.errors import InputError, KilowaitError, NoProgressError
from kilowait.evaluation.bounds import with_perfect_estimates
from kilowait.evaluation.comparison import Comparison, PolicyConfig, Windows
from kilowait.evaluation.storage import ComparisonFolder, load_comparison
from kilowait.experiments.comparison.freedom import with_freedom
from kilowait.experiments.gpu_options import run_speeds, simulate_arguments
from kilowait.experiments.policies import policy_and_placement, policy_digest, resolve_policy
from kilowait.experiments.power import PowerContext
from kilowait.experiments.power_controls import PowerAgent, bind_agent_power, gpu_cap_share
from kilowait.experiments.predictors import USERS_PREFIX, with_requests
from kilowait.experiments.scenario_inputs import Workload, jobs_sha256
from kilowait.files import remove_leftovers
from kilowait.jobs import ExecutionLog, JobTable
from kilowait.jobs.execution_log import Allocations, NodeStates
from kilowait.policies import simulate
from kilowait.policies.simulation import gpu_settings_for

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
    workload: Workload
    windows: Windows
    settings: Mapping[str, Any]
    """Keyword arguments of `simulate` except backfill, or the settings of a scenario (with `GpuOptions` as "gpu")."""
    power_context: PowerContext | None = None
    """Power model and signals that the runs are accounted with; None: no energy accounting."""
    settings_dict: Mapping[str, Any] = field(default_factory=dict)
    """The settings as plain data, for the digest."""
    gpu_speeds: str = GpuSettings.gpu_speeds
    """GPU throughputs: the setting `gpu_speeds`, which may name a file."""
    notes: tuple[str, ...] = ()
    """Notes for the user."""
    freedom: Mapping[str, Any] = field(default_factory=dict)
    """GPU settings that every priority policy gets because another contender has them (`freedom.shared_freedom`)."""

    @property
    def digest(self) -> str:
        """Digest of the content of jobs, cluster and settings."""
        jobs = self.windows.jobs
        digest = jobs_sha256(jobs)
        labels = {name: list(values) for name, values in jobs.labels.items()}
        settings = {**self.settings_dict, "labels": labels, "freedom": dict(self.freedom)}
        digest.update(json.dumps([repr(self.cluster), settings]).encode())
        speeds_file = Path(self.gpu_speeds)
        if speeds_file.is_file():
            digest.update(speeds_file.read_bytes())
        return str(digest.hexdigest())


def run_cell(
    jobs: JobTable,
    cluster: Cluster,
    config: PolicyConfig,
    policy: Policy,
    settings: Mapping[str, Any],
    power_context: PowerContext | None = None,
    freedom: Mapping[str, Any] | None = None,
) -> ExecutionLog:
    """Simulate one window; `settings` are those of a scenario, or arguments of `simulate`; `freedom` is that of a case.

    A clairvoyant policy gets perfect estimates, a policy with the prefix ``users:`` gets the jobs without predictions.
    The log always has the original jobs.
    """
    policy_jobs = with_perfect_estimates(jobs) if config.kind == "clairvoyant" else jobs
    if config.policy.startswith(USERS_PREFIX):
        policy_jobs = with_requests(jobs)
    if power_context is not None or isinstance(policy, PowerAgent):
        policy = bind_agent_power(policy, power_context, config.power_controls)
    settings = with_freedom(settings, policy, freedom or {})
    controls = None
    if power_context is not None and config.power_controls != "none" and gpu_cap_share(config.power_controls) is None:
        controls = power_context.resolve_controls(config.power_controls, policy_jobs)
    if "gpu" in settings and not cluster.node_level:  # the settings of a scenario on a batch cluster
        settings = {name: value for name, value in settings.items() if name != "gpu"}
    elif "gpu" in settings:
        settings = simulate_arguments(
            settings, policy_jobs, cluster, policy, config.backfill, power_context, config.power_controls
        )
    elif power_context is not None and gpu_cap_share(config.power_controls) is not None:
        text = gpu_settings_for(policy, config.backfill, **settings).gpu_speeds
        speeds = run_speeds(text, policy_jobs, cluster, power_context, config.power_controls)
        settings = {**settings, "speeds": speeds}
    log = simulate(policy_jobs, cluster, policy, config.backfill, power_controls=controls, **settings)
    return log if policy_jobs is jobs else replace(log, jobs_table=jobs)


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
    cache: FolderCellCache | None = None,
    progress: Callable[[Cell, bool], None] | None = None,
    running: Callable[[float], None] | None = None,
    policies: Sequence[Policy] | None = None,
) -> tuple[dict[Cell, ExecutionLog], dict[int, str]]:
    """Run every policy in every window of every case; the logs do not depend on the number of processes.

    A run that would not end ends the runs of its policy: the second result are the errors by number of the policy.
    `progress` is called with every finished cell, and whether it was run; `running` about twice a second with the
    amount of unfinished work that is done, in runs: 1.5 if one run is done and another by half, of a process that has
    not returned its results yet. With a cache, finished cells are read from it and written to it. `policies` are the
    policy objects of the configurations, for one process; None: every process resolves them by name.
    """
    logs: dict[Cell, ExecutionLog] = {}
    errors: dict[int, str] = {}

    def finish(cell: Cell, result: ExecutionLog | NoProgressError, ran: bool) -> None:
        if isinstance(result, NoProgressError):
            errors.setdefault(cell[1], str(result))
        else:
            logs[cell] = result
            if ran and cache is not None:
                cache.save(cell, result)
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
            if cell[1] not in errors:
                with nullcontext() if running is None else monitored_runs(_one_run(running)):
                    result = _run(cell, cases, configs, resolved)
                finish(cell, result, True)
    else:
        for cell, result in _run_in_processes(cases, configs, remaining, workers, running):
            finish(cell, result, True)
    return logs, errors


def _run(
    cell: Cell, cases: Sequence[ComparisonCase], configs: Sequence[PolicyConfig], policies: Sequence[Policy]
) -> ExecutionLog | NoProgressError:
    """The log of a cell, or the error of a run that would not end."""
    case, config, policy = cases[cell[0]], configs[cell[1]], policies[cell[1]]
    jobs, settings = case.windows[cell[2]].jobs, dict(case.settings)
    placement = policy_and_placement(config.policy)[1]
    if placement is not None:
        settings["placement"] = placement
    try:
        return run_cell(jobs, case.cluster, config, policy, settings, case.power_context, case.freedom)
    except NoProgressError as problem:
        return problem


def _resolve_policies(configs: Sequence[PolicyConfig]) -> list[Policy]:
    return [resolve_policy(policy_and_placement(config.policy)[0]) for config in configs]


def all_cells(cases: Sequence[ComparisonCase], policies: Sequence[PolicyConfig]) -> Iterator[Cell]:
    """All cells, in the order of a comparison folder."""
    for number, case in enumerate(cases):
        for policy in range(len(policies)):
            for window in range(len(case.windows)):
                yield number, policy, window


def _one_run(running: Callable[[float], None]) -> Callable[[int, int, float], None]:
    """A function that reports the share of a run that is done."""
    return lambda ended, jobs, seconds: running(ended / jobs if jobs else 1.0)


# -- several processes ---------------------------------------------------------------------------

POLL_S = 0.5
"""Time between two reports of the progress of processes."""
_shares: Any = None
"""In a worker process: shared memory, with the amount of unfinished work that each process has done, in runs."""
_slot = 0
"""In a worker process: its place in `_shares`."""
_worker_inputs: tuple[Sequence[ComparisonCase], Sequence[PolicyConfig], Sequence[Policy]] = ((), (), ())
"""In a worker process: the cases, policy configurations and policies."""


def _initialize_worker(
    cases: Sequence[ComparisonCase], configs: Sequence[PolicyConfig], shares: Any, next_slot: Any
) -> None:
    global _worker_inputs, _shares, _slot  # noqa: PLW0603 - the inputs are sent to a worker process once
    with next_slot.get_lock():
        _slot = next_slot.value
        next_slot.value += 1
    _shares = shares
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process handles Ctrl-C
    _worker_inputs = (cases, configs, _resolve_policies(configs))


def _share_progress(finished: int) -> Callable[[int, int, float], None]:
    """A function that stores the work done in this process, after `finished` runs of its chunk."""

    def store(ended: int, jobs: int, seconds: float) -> None:
        _shares[_slot] = finished + (ended / jobs if jobs else 1.0)

    return store


def _run_chunk(cells: Sequence[Cell]) -> list[tuple[Cell, ExecutionLog | NoProgressError]] | str:
    """The results of the cells, without the job tables, which the parent process has; or an error message."""
    cases, configs, policies = _worker_inputs
    try:
        results: list[ExecutionLog | NoProgressError] = []
        for cell in cells:
            with monitored_runs(_share_progress(len(results))):
                results.append(_run(cell, cases, configs, policies))
    except KilowaitError as problem:
        return str(problem)
    finally:
        _shares[_slot] = 0.0
    no_jobs = JobTable(job_id=[], submit_s=[], runtime_s=[], nodes=[])
    return [
        (cell, result if isinstance(result, NoProgressError) else replace(result, jobs_table=no_jobs))
        for cell, result in zip(cells, results, strict=True)
    ]


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
    cases: Sequence[ComparisonCase],
    configs: Sequence[PolicyConfig],
    cells: Sequence[Cell],
    workers: int,
    running: Callable[[float], None] | None = None,
) -> Iterator[tuple[Cell, ExecutionLog | NoProgressError]]:
    # Spawned, because a child forked from a process with threads may hang.
    context = multiprocessing.get_context("spawn")
    earlier_children = multiprocessing.active_children()
    shares, next_slot = context.Array("d", workers, lock=False), context.Value("q", 0)
    with ProcessPoolExecutor(workers, context, _initialize_worker, (cases, configs, shares, next_slot)) as pool:
        try:
            with _ignore_interrupts():
                futures: list[Future[Any]] = [pool.submit(_run_chunk, chunk) for chunk in _chunks(cases, cells)]
            for future in _completed(futures, shares, running):
                result = future.result()
                if isinstance(result, str):
                    raise InputError(result)
                for cell, one in result:
                    if isinstance(one, NoProgressError):
                        yield cell, one
                    else:
                        yield cell, replace(one, jobs_table=cases[cell[0]].windows[cell[2]].jobs)
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


def _completed(
    futures: Sequence[Future[Any]], shares: Any, running: Callable[[float], None] | None
) -> Iterator[Future[Any]]:
    """The futures as they complete; the progress of the processes is reported meanwhile."""
    remaining = set(futures)
    while remaining:
        done, remaining = wait(remaining, None if running is None else POLL_S, FIRST_COMPLETED)
        yield from done
        if running is not None:
            running(sum(shares))


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


CELL = StateFormat("finished run of a comparison", version=1, remedy="run it again")
_COLUMNS = (
    "job", "start_s", "end_s", "group", "level", "outcome", "eligible_s", "job_outcome", "capacity_s",
    "capacity",
)  # fmt: skip
_STATES = ("time_s", "group", "shutting_down", "asleep", "waking")
_PIECES = ("segment", "node", "gpus", "gpu_milli", "count", "work_s", "lost_s", "node_group")


class FolderCellCache:
    """Finished cells by digest, in the folder OUT.cells and in an earlier comparison in the folder OUT.

    OUT.cells exists only while a comparison is unfinished.
    """

    def __init__(self, out: Path, cases: Sequence[ComparisonCase], policies: Sequence[PolicyConfig]) -> None:
        self.folder = out.with_name(f"{out.name}.cells")
        self.hits = 0
        """Cells that were read instead of run."""
        self._cases, self._configs = cases, policies
        self._digests = [case.digest for case in cases]
        self._policies = [_policy_digest(config.policy) for config in policies]
        self._earlier: dict[str, tuple[Comparison, int, int]] = {}
        remove_leftovers(self.folder)
        if (out / "manifest.json").exists():
            self._earlier = _cells_by_key(load_comparison(out))

    def key(self, cell: Cell) -> str:
        """The digest of everything the cell depends on."""
        case, policy, window = cell
        windows, config = self._cases[case].windows, self._configs[policy]
        rows = (int(windows.first[window]), int(windows.size[window]), int(windows.warmup[window]))
        parts = [self._digests[case], rows, self._policies[policy], str(config.backfill), config.kind, _code_digest()]
        context = self._cases[case].power_context
        gpu_options = self._cases[case].settings_dict.get("gpu", {})
        needs_power = config.power_controls != "none" or gpu_options.get("gpu_type_order") == "least-energy"
        if context is not None and needs_power:
            parts += [config.power_controls, context.digest]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]

    def load(self, cell: Cell) -> ExecutionLog | None:
        """The log of a finished cell; None if there is none, or it cannot be read."""
        key = self.key(cell)
        jobs = self._cases[cell[0]].windows[cell[2]].jobs
        if key in self._earlier:
            comparison, policy, window = self._earlier[key]
            self.hits += 1
            return replace(comparison.logs(policy, window), jobs_table=jobs)
        try:
            state = CELL.read(self._path(key))
        except InputError:
            return None
        self.hits += 1
        states, pieces = state.pop("states"), state.pop("pieces")
        return ExecutionLog(
            jobs_table=jobs,
            groups=tuple(state.pop("groups")),
            states=None if states is None else NodeStates(**states),
            pieces=None if pieces is None else Allocations(**pieces),
            **state,
        )

    def save(self, cell: Cell, log: ExecutionLog) -> None:
        """Write a finished cell; the file is replaced atomically."""
        state = {
            **{name: getattr(log, name) for name in _COLUMNS},
            "groups": list(log.groups),
            "run": dict(log.run),
            "states": None if log.states is None else {name: getattr(log.states, name) for name in _STATES},
            "pieces": None if log.pieces is None else {name: getattr(log.pieces, name) for name in _PIECES},
        }
        CELL.write(self._path(self.key(cell)), state)

    def check_unused(self, *, force: bool = False) -> None:
        """Raise an error if the folder has finished cells of another comparison, which `clear` would remove.

        Cells of another version of the simulator do not count: nothing can use them. With `force` they are removed.
        """
        if force:
            return
        used = {self._path(self.key(cell)).name for cell in all_cells(self._cases, self._configs)}
        found = {path.name for path in self.folder.glob(f"{_code_digest()[:8]}-*.safetensors")}
        if unused := len(found - used):
            raise InputError(
                f"{self.folder} contains {unused:,} finished {'run' if unused == 1 else 'runs'} of an interrupted "
                "comparison with other jobs, policies or settings, which would be removed: repeat that comparison to "
                "finish it, name another folder, or discard them with --force"
            )

    def _path(self, key: str) -> Path:
        """The file of a cell; its name begins with the version of the simulator."""
        return self.folder / f"{_code_digest()[:8]}-{key}.safetensors"

    def clear(self) -> None:
        """Remove the folder of cells, after the comparison was written."""
        shutil.rmtree(self.folder, ignore_errors=True)


def _cells_by_key(earlier: ComparisonFolder) -> dict[str, tuple[Comparison, int, int]]:
    cells = [
        (comparison, policy, window)
        for comparison in earlier.comparisons
        for policy in range(len(comparison.policies))
        for window in range(len(comparison.windows))
    ]
    if len(earlier.cells) not in (0, len(cells)):
        raise InputError(
            f"{earlier.path / 'cases.json'} names {len(earlier.cells)} cells, and the comparison has {len(cells)}; "
            "name another folder"
        )
    return dict(zip(earlier.cells, cells, strict=False))


def _policy_digest(policy: str) -> str:
    """The digest of a policy with its placement."""
    name, placement = policy_and_placement(policy)
    return f"{policy_digest(name)}@{placement or ''}"


@cache
def _code_digest() -> str:
    """Digest of the source code of the simulator: cells of another version are run again."""
    digest = hashlib.sha256(np.__version__.encode())
    root = Path(kilowait.__file__).parent
    for package in ("engine", "energy", "policies", "agents", "jobs", "cluster"):
        for source in sorted((root / package).rglob("*.py")):
            digest.update(source.read_bytes())
    return digest.hexdigest()
