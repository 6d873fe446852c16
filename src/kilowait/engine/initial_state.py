"""Initial simulation state from a job table and a cluster."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.engine.interface import JOB, PriorityPolicy
from kilowait.engine.kernels.state import (
    CAPACITY_CHANGE,
    GROUP,
    JOB_EXTRA,
    JOB_STATE,
    POOL,
    QUEUE_ENTRY,
    RANKED,
    RUN_STATE,
    USAGE,
    State,
)
from kilowait.engine.pools import CORES, GPUS, MEMORY, NODES, WATTS, ResourcePools
from kilowait.engine.run_times import RunTimes, resolve_run_times
from kilowait.engine.settings import OVERRUN_RULES, UNLIMITED, Settings
from kilowait.errors import TableError
from kilowait.jobs import JobTable

Ints = npt.NDArray[np.int64]

_UNKNOWN = np.zeros(1, JOB)
"""Template record with unknown fields; copying it whole is faster than field by field."""
for _name in ("user", "account", "queue", "qos"):
    _UNKNOWN[_name] = -1


def build_initial_state(
    jobs: JobTable,
    machine: ResourcePools,
    settings: Settings,
    policy: PriorityPolicy,
    backfill_policy: PriorityPolicy | None,
    *,
    timeline: bool = False,
) -> State:
    """The state before the first event. `jobs` are in (submit, id) order; `timeline` forces use of the timeline."""
    n = len(jobs)
    need, pool_need = _needs(jobs, machine)
    preference_row, preference = _preferences(jobs, machine)
    allowed, least = _allowed(jobs, machine, need, pool_need, preference_row, preference, settings)
    times = resolve_run_times(jobs, settings.at_limit, limited=policy.predicts)
    earliest = np.maximum(jobs["submit_s"], jobs["begin_s"]) if "begin_s" in jobs else jobs["submit_s"]
    first, following, arrivals = _dependents(jobs, earliest, settings.dependencies)
    dependents = len(arrivals) < n
    cancels = "cancel_s" in jobs
    changes = np.array(machine.changes, CAPACITY_CHANGE).view(np.recarray)
    timeline = timeline or settings.depth > 1 or len(changes) > 0
    # A running or reserved job has at most two breakpoints; a moved reservation leaves its old ones behind.
    breakpoints = (4 if settings.depth == UNLIMITED else 2) * n + len(changes) + 4 if timeline else 0
    half_life = max(policy.half_life_s, backfill_policy.half_life_s if backfill_policy is not None else 0.0)
    user, users = _users(jobs) if half_life > 0 else (0, 0)

    clock = _run_state(settings, policy, backfill_policy)
    clock["one_pool"] = len(machine.pool_kind) == 1
    clock["timeline"] = timeline
    clock["dependents"] = dependents
    clock["cancels"] = cancels
    clock["half_life_s"] = half_life
    clock["first_submit_s"] = clock["now"] = jobs["submit_s"][0] if n else 0.0

    job_state = records(JOB_STATE, n)
    job_state["run_s"] = times.run_s
    job_state["earliest_s"] = earliest
    job_state["allowed"] = allowed
    job_state["least_need"] = least
    if len(preference) > 1:
        job_state["preference_row"] = preference_row
    extra = backfill_policy is not None or settings.depth == UNLIMITED or half_life > 0 or cancels or dependents
    job_extra = records(JOB_EXTRA, n if extra or settings.max_wait_s < np.inf else 0)
    if cancels:
        job_extra["cancel_s"] = jobs["cancel_s"]
    if dependents:
        job_extra["think_s"] = jobs.column("think_s")
        job_extra["first_dependent"], job_extra["next_dependent"] = first, following
    if half_life > 0:
        job_extra["user"] = user

    usage = records(USAGE, users + 1)
    usage["as_of_s"] = clock["now"]
    usage["share_s"] = -np.inf

    groups, pools = _groups_and_pools(machine, pool_need)
    return State(
        clock=clock,
        jobs=_job_records(jobs, times),
        job_state=job_state,
        job_extra=job_extra,
        need=need,
        arrivals=arrivals,
        groups=groups,
        pools=pools,
        preference=preference,
        changes=changes,
        announcements=np.unique(changes["announced_s"][changes["announced_s"] > -np.inf]),
        segments=np.empty(n, np.int64),
        # A job has at most two pending events: finish, arrival or end of hold; and a cancellation.
        events=blank(RANKED, 2 * n + 2),
        queue=blank(QUEUE_ENTRY, n + 1),
        new_arrivals=np.empty(n + 1, np.int64),
        expected_ends=blank(RANKED, n + 1),
        candidates=blank(RANKED, n + 1),
        timeline_s=np.empty(breakpoints),
        timeline_free=np.empty((breakpoints, len(pools)), np.int64),
        usage=usage,
    )


def _run_state(settings: Settings, policy: PriorityPolicy, backfill_policy: PriorityPolicy | None) -> Any:
    """The settings of the run in its RUN_STATE record."""
    clock = records(RUN_STATE, 1)
    clock["depth"] = settings.depth
    clock["time_dependent"] = policy.time_dependent
    clock["backfill_order"] = 0 if backfill_policy is None else 1 + backfill_policy.time_dependent
    clock["per_event"] = settings.schedule_per == "event"
    clock["overrun"] = OVERRUN_RULES[settings.overrun]
    clock["balance"] = settings.placement == "balance"
    clock["track_expected_ends"] = True
    clock["observes_jobs"] = policy.observes_jobs
    clock["predicts"] = policy.predicts
    clock["max_wait_s"] = settings.max_wait_s
    return clock


def _groups_and_pools(machine: ResourcePools, pool_need: Ints) -> tuple[Any, Any]:
    groups = records(GROUP, len(machine.names))
    groups["pool_lo"], groups["pool_hi"] = machine.pool_lo[:-1], machine.pool_lo[1:]
    groups["shadow_s"] = np.inf
    groups["reservation_end_s"] = machine.reservation_end_s
    pools = records(POOL, len(machine.pool_kind))
    pools["need"], pools["capacity"], pools["free"] = pool_need, machine.capacity, machine.free
    return groups, pools


def records(kind: np.dtype[Any], count: int) -> npt.NDArray[Any]:
    """Zeroed records that can be read by attribute, compiled or not."""
    return np.zeros(count, kind).view(np.recarray)


def blank(kind: np.dtype[Any], count: int) -> npt.NDArray[Any]:
    """Uninitialized records, which are written before they are read."""
    return np.empty(count, kind).view(np.recarray)


def _needs(jobs: JobTable, machine: ResourcePools) -> tuple[Ints, Ints]:
    """(n, K) resource demand of each job, and the column of each pool."""
    n = len(jobs)
    columns: dict[tuple[int, ...], npt.NDArray[Any]] = {}
    pool_need = []
    for g in range(len(machine.names)):
        group = machine.group_of(g)
        for kind in machine.pool_kind[machine.pool_lo[g] : machine.pool_lo[g + 1]].tolist():
            # Groups of which jobs need the same amount have one column.
            column = (kind, group.cores, group.total_cores) if kind == CORES and "cores" not in jobs else (kind,)
            if column not in columns:
                if kind == NODES:
                    columns[column] = jobs["nodes"] if jobs.unit == "node" else jobs.size
                elif kind == CORES:
                    columns[column] = (
                        np.maximum(jobs["cores"], 1) if "cores" in jobs else group.cores_for(jobs["nodes"])
                    )
                elif kind == MEMORY:
                    columns[column] = np.ceil(jobs["memory_mb"]) if "memory_mb" in jobs else np.zeros(n)
                elif kind == WATTS:
                    columns[column] = np.zeros(n)  # it depends on the DVFS level; see power_initial_state
                else:
                    columns[column] = jobs["gpus"] if "gpus" in jobs else np.zeros(n)
            pool_need.append(list(columns).index(column))
    if len(columns) == 1:
        need = np.ascontiguousarray(next(iter(columns.values())), np.int64).reshape(n, 1)
    else:
        need = np.stack(list(columns.values()), axis=1).astype(np.int64)
    need.flags.writeable = False  # like table columns: the compiled signatures require it
    return need, np.array(pool_need, np.int64)


def _preferences(jobs: JobTable, machine: ResourcePools) -> tuple[Ints, Ints]:
    """Row of group preferences of each job, and the table of rows: groups in order, -1 at the end."""
    rows = list(machine.rows.values())
    preference = np.full((len(rows), len(machine.names)), -1, np.int64)
    for i, row in enumerate(rows):
        preference[i, : len(row)] = row
    preference_row = np.zeros(len(jobs), np.int64)
    if len(rows) > 1 and "queue" in jobs:
        queue = jobs["queue"]
        labels = jobs.labels.get("queue")
        numbers = {name: i for i, name in enumerate(labels)} if labels is not None else None
        for i, name in enumerate(machine.rows):
            if i == 0:
                continue
            if numbers is not None:
                code = numbers.get(name)
            else:
                code = int(name) if name.isascii() and name.isdigit() else None
            if code is not None and code >= 0:
                preference_row[queue == code] = i
    return preference_row, preference


def _allowed(
    jobs: JobTable,
    machine: ResourcePools,
    need: Ints,
    pool_need: Ints,
    preference_row: Ints,
    preference: Ints,
    settings: Settings,
) -> tuple[Ints, Ints]:
    """Groups of each job's queue that can hold it when empty, as bits; minimum first-pool demand over them."""
    allowed = np.zeros(len(jobs), np.int64)
    least = np.zeros(0, np.int64)
    for g in range(len(machine.names)):
        first = machine.pool_lo[g]
        fits = np.array([g in row for row in preference])[preference_row] if len(preference) > 1 else np.True_
        kinds = machine.pool_kind[first : machine.pool_lo[g + 1]]
        for p in range(first, machine.pool_lo[g + 1]):
            fits = fits & (need[:, pool_need[p]] <= machine.capacity[p])
        if NODES not in kinds and GPUS not in kinds and "gpus" in jobs:
            fits &= jobs["gpus"] == 0
        allowed |= fits.astype(np.int64) << g
        group_need = np.where(fits, need[:, pool_need[first]], 2**62)
        least = group_need if g == 0 else np.minimum(least, group_need)
    if settings.on_oversized == "error" and len(allowed) and not allowed.all():
        row = int(np.argmin(allowed != 0))
        raise TableError(
            f"{int((allowed == 0).sum())} job(s) are larger than any group they may use, first job "
            f"{jobs['job_id'][row]} with {_request(jobs, row)}; the machine has "
            f"{_group_sizes(machine)}: "
            "use a larger cluster, or on_oversized='drop' to leave such jobs out"
        )
    return allowed, least


def _request(jobs: JobTable, row: int) -> str:
    """What a job requests, in words."""
    size = int(jobs.size[row])
    return f"{size:,} {jobs.unit}{'' if size == 1 else 's'}"


def _group_sizes(machine: ResourcePools) -> str:
    """The size of each group, in words."""
    texts = []
    for g, name in enumerate(machine.names):
        size, unit = int(machine.capacity[machine.pool_lo[g]]), machine.group_of(g).unit
        texts.append(f"{size:,} {unit}{'' if size == 1 else 's'}" + (f" in {name}" if len(machine.names) > 1 else ""))
    return ", ".join(texts)


def _dependents(
    jobs: JobTable, earliest: npt.NDArray[np.float64], enabled: bool
) -> tuple[Ints | int, Ints | int, Ints]:
    """Linked lists of dependents by job, and the jobs without dependency by (earliest, number)."""
    n = len(jobs)
    all_jobs = np.arange(n, dtype=np.int64)
    if "begin_s" not in jobs and not (enabled and "after_id" in jobs):
        return 0, 0, all_jobs
    after = np.full(n, -1, np.int64)
    if enabled and "after_id" in jobs and (jobs["after_id"] >= 0).any():
        ids = jobs["job_id"]
        by_id = np.argsort(ids, kind="stable")
        found = np.searchsorted(ids[by_id], jobs["after_id"])
        found[found == n] = 0
        row = by_id[found]
        known = (ids[row] == jobs["after_id"]) & (jobs["after_id"] >= 0)
        after[known] = row[known]
        _reject_cycles(jobs, after)
    free = after < 0
    arrivals = all_jobs[free]
    if "begin_s" in jobs:
        arrivals = arrivals[np.argsort(earliest[arrivals], kind="stable")]
    if free.all():
        return 0, 0, arrivals
    first = np.zeros(n, np.int64)
    following = np.zeros(n, np.int64)
    for job in all_jobs[~free][::-1]:  # backwards, so that each list is in job order
        following[job] = first[after[job]]
        first[after[job]] = job + 1
    return first, following, arrivals


def _reject_cycles(jobs: JobTable, after: Ints) -> None:
    """Raise an error that names a job of a dependency cycle."""
    checked = np.zeros(len(after), np.int8)  # 1 on the current path, 2 without cycle
    for first in np.flatnonzero(after >= 0):
        path = []
        job = first
        while job >= 0 and checked[job] == 0:
            checked[job] = 1
            path.append(job)
            job = after[job]
        if job >= 0 and checked[job] == 1:
            raise TableError(
                f"job {jobs['job_id'][job]} depends on itself through after_id; "
                "break the cycle or use dependencies=False"
            )
        checked[path] = 2


def _users(jobs: JobTable) -> tuple[Ints, int]:
    """Users numbered from 0 without gaps; all unknown users are one."""
    names, number = np.unique(jobs.column("user"), return_inverse=True)
    return number.astype(np.int64), len(names)


def _job_records(jobs: JobTable, times: RunTimes) -> npt.NDArray[Any]:
    """The job records that policies may read."""
    view = np.repeat(_UNKNOWN, len(jobs)).view(np.recarray)
    # submit_s, since_first_s and number are written when a job arrives
    view["estimate_s"], view["planned_s"], view["limit_s"] = times.estimate_s, times.planned_s, times.limit_s
    if "overrun_planned_s" in jobs:
        view["overrun_planned_s"] = times.overrun_planned_s
    view["expected_inverse_runtime"] = times.expected_inverse_runtime
    for name in ("nodes", "cores", "memory_mb", "gpus", "priority", "user", "account", "queue", "qos"):
        if name in jobs:
            view[name] = jobs[name]
    view["units"] = jobs.size
    return view
