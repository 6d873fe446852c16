"""Initial simulation state of runs with power controls."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.cluster import PowerControls
from kilowait.engine.initial_state import blank, build_initial_state, records
from kilowait.engine.interface import PriorityPolicy
from kilowait.engine.kernels.state import NODE_BATCH, NODE_CHANGE, POWER_CONTROL_STATE, SLEEP_STATE, PowerState
from kilowait.engine.pools import NODES, WATTS, ResourcePools
from kilowait.engine.settings import Settings
from kilowait.errors import ClusterError, TableError, UnknownNameError
from kilowait.jobs import JobTable

NODE_CHANGES = 4096
"""Initial rows of the buffer of node changes, beside two per job; it grows on demand."""


def add_power_pool(machine: ResourcePools, power_controls: PowerControls, first_s: float) -> ResourcePools:
    """Add a pool of watts to every group, with the steps of the power budget as capacity changes."""
    if power_controls.budget is None:
        return machine
    past = [watts for time, watts in power_controls.budget if time <= first_s]
    ahead = [(time, watts) for time, watts in power_controls.budget if time > first_s]
    largest = max(watts for _, watts in power_controls.budget)
    groups = len(machine.names)
    shift = np.repeat(np.arange(groups), np.diff(machine.pool_lo))  # a pool of group g moves up by g
    at = machine.pool_lo[1:]

    def with_watts(column: npt.NDArray[np.int64], value: int) -> npt.NDArray[np.int64]:
        return np.insert(column, at, value)

    changes = [
        (time, announced, number, pool + int(shift[pool]), by) for time, announced, number, pool, by in machine.changes
    ]
    number = max((change[2] for change in changes), default=-1) + 1
    before = past[-1]
    pools = [int(machine.pool_lo[g + 1]) + g for g in range(groups)]
    for time, watts in ahead:
        changes += [(time, -np.inf, number, pool, watts - before) for pool in pools]
        number, before = number + 1, watts
    return replace(
        machine,
        pool_lo=machine.pool_lo + np.arange(groups + 1),
        pool_kind=with_watts(machine.pool_kind, WATTS),
        capacity=with_watts(machine.capacity, largest),
        free=with_watts(machine.free, past[-1]),
        changes=sorted(changes, key=lambda change: (change[0], change[2])),
    )


def build_power_state(
    jobs: JobTable,
    order: npt.NDArray[np.int64] | None,
    machine: ResourcePools,
    settings: Settings,
    policy: PriorityPolicy,
    backfill_policy: PriorityPolicy | None,
    power_controls: PowerControls,
) -> PowerState:
    """The state before the first event. `jobs` are in (submit, id) order; `order` maps them to the given rows."""
    n, groups = len(jobs), len(machine.names)
    budget = power_controls.budget is not None
    base = build_initial_state(
        jobs, machine, settings, policy, backfill_policy, timeline=budget and groups > 1 and settings.depth > 0
    )
    levels = power_controls.levels
    factor = (
        np.ones((1, 1, 1)) if power_controls.factor is None else _table(power_controls.factor, "factor", n, machine)
    )
    shared_factors = factor.shape[1] == 1 or factor.strides[1] == 0  # one row shared by all jobs
    factor = factor[:, :1] if shared_factors else _sorted(factor, order, 1)
    watts, least_watts = np.zeros((0, 0, 0), np.int64), np.zeros(0, np.int64)
    need = np.array(base.need)
    if power_controls.watts is not None and budget:
        watts = _sorted(_table(power_controls.watts, "watts", n, machine), order, 1)
        watts = np.require(watts, np.int64, ["C", "W"])
        group_watts = watts.min(axis=2)
        least_watts = group_watts.min(axis=0)
        _reject_over_budget(jobs, base.job_state, need, base.pools["need"], group_watts, machine, settings)
    preferred_level = np.zeros(n, np.int64)
    if power_controls.preferred_level is not None:
        if power_controls.preferred_level.shape != (n,):
            raise TableError(f"preferred levels of {len(power_controls.preferred_level)} jobs for a table of {n}")
        preferred_level = np.array(_sorted(power_controls.preferred_level, order), np.int64)
    control_state = records(POWER_CONTROL_STATE, 1)
    control_state["levels"], control_state["budget"], control_state["full_speed_backlog_nodes"] = (
        levels,
        budget,
        power_controls.full_speed_backlog_nodes,
    )
    if budget:
        control_state["watts_column"] = base.pools["need"][machine.pool_lo[1] - 1]
    control_state["one_pool"] = groups == 1 and len(machine.pool_kind) == 1 + budget
    control_state["shared_factors"] = shared_factors
    control_state["load_shifting"] = "hold_until_s" in jobs
    hold_until_s = np.array(jobs["hold_until_s"] if control_state["load_shifting"][0] else np.zeros(0), np.float64)
    control_state["sleeps"] = len(power_controls.sleep) > 0
    sleep_state, reserve = _sleep_states(power_controls, machine)
    max_nodes = max(
        (int(machine.capacity[machine.pool_lo[g]]) for g in range(groups) if sleep_state["sleeps"][g]), default=1
    )
    batches = (groups, 2 * max_nodes + 4)
    return PowerState(
        *base._replace(need=need),
        power_control_state=control_state,
        factor=np.require(np.broadcast_to(factor, (groups, factor.shape[1], levels)), np.float64, ["C", "W"]),
        watts=watts,
        least_watts=least_watts,
        preferred_level=preferred_level,
        run_s=np.array(base.job_state["run_s"]),
        planned_s=np.array(base.jobs["planned_s"]),
        hold_until_s=hold_until_s,
        reserved_level=np.zeros(n, np.int64),
        sleep_state=sleep_state,
        idle=np.zeros(batches, NODE_BATCH).view(np.recarray),
        shutting_down=np.zeros(batches, NODE_BATCH).view(np.recarray),
        booting=np.zeros(batches, NODE_BATCH).view(np.recarray),
        reserve=reserve,
        node_changes=blank(NODE_CHANGE, NODE_CHANGES + 2 * n if power_controls.sleep else 0),
    )


def with_larger_node_change_buffer(state: PowerState) -> PowerState:
    """The state with twice the buffer for node changes."""
    node_changes = blank(NODE_CHANGE, 2 * len(state.node_changes) + NODE_CHANGES)
    node_changes[: len(state.node_changes)] = state.node_changes
    return state._replace(node_changes=node_changes)


def _table(table: npt.NDArray[Any], name: str, n: int, machine: ResourcePools) -> npt.NDArray[Any]:
    """(groups, jobs, levels) for the machine's groups."""
    plain = int(machine.like.max()) + 1
    if table.shape[:2] != (plain, n):
        raise TableError(
            f"{name} has the shape {table.shape}; it must be ({plain} groups, {n} jobs, levels), as the cluster and "
            "the job table have them"
        )
    return table if len(machine.like) == plain else table[machine.like]


def _sorted(table: npt.NDArray[Any], order: npt.NDArray[np.int64] | None, axis: int = 0) -> npt.NDArray[Any]:
    """The table with jobs in order of submission."""
    return table if order is None else table.take(order, axis)


def _reject_over_budget(
    jobs: JobTable,
    job_state: Any,
    need: npt.NDArray[np.int64],
    pool_need: npt.NDArray[np.int64],
    least_watts: npt.NDArray[np.int64],
    machine: ResourcePools,
    settings: Settings,
) -> None:
    """Disallow groups on which a job exceeds the largest budget at every level; raise an error if none is left."""
    least = np.full(len(jobs), 2**62)
    for g in range(len(machine.names)):
        largest_budget = machine.capacity[machine.pool_lo[g + 1] - 1]
        job_state["allowed"] &= ~((least_watts[g] > largest_budget).astype(np.int64) << g)
        group_need = need[:, pool_need[machine.pool_lo[g]]]
        least = np.where(job_state["allowed"] >> g & 1 == 1, np.minimum(least, group_need), least)
    job_state["least_need"] = least
    if settings.on_oversized == "error" and len(jobs) and not job_state["allowed"].all():
        row = int(np.argmin(job_state["allowed"] != 0))
        raise TableError(
            f"job {jobs['job_id'][row]} draws at least {int(least_watts[:, row].min()):,} W, and the power budget is "
            f"never more than {int(machine.capacity[machine.pool_lo[1] - 1]):,} W above what the idle machine draws: "
            "give a larger budget, or on_oversized='drop' to leave such jobs out"
        )


def _sleep_states(power_controls: PowerControls, machine: ResourcePools) -> tuple[Any, Any]:
    """Sleep settings of each group, and the steps of their reserves, concatenated."""
    plain = machine.names[: int(machine.like.max()) + 1]
    for name in power_controls.sleep:
        if name not in plain:
            raise UnknownNameError("sleeping group", name, plain)
        if machine.pool_kind[machine.pool_lo[plain.index(name)]] != NODES:
            raise ClusterError(
                f"group {name!r} is shared among jobs; only whole nodes can be put to sleep: allocate whole nodes "
                "(shared = false, or --exclusive-nodes), or leave the sleep policy out"
            )
        if not machine.cluster.groups[plain.index(name)].nodes_known:
            raise ClusterError(
                f"group {name!r} counts processors, and its nodes are unknown; give the cores of a node with "
                "--cores-per-node, or a cluster of nodes"
            )
    sleep_state = records(SLEEP_STATE, len(machine.names))
    steps: list[tuple[float, int]] = []
    for g, name in enumerate(plain):
        policy = power_controls.sleep.get(name)
        if policy is None:
            continue
        sleep_state["sleeps"][g], sleep_state["wake_ahead"][g] = 1, policy.wake_ahead
        sleep_state["timeout_s"][g], sleep_state["shutdown_s"][g] = policy.timeout_s, policy.shutdown_s
        sleep_state["wake_s"][g] = policy.wake_s
        sleep_state["reserve_at"][g] = len(steps)
        steps += policy.reserve
        sleep_state["reserve_end"][g] = len(steps)
    sleep_state["check_s"] = np.inf
    reserve = np.array(steps or [(0.0, 0)], NODE_BATCH).view(np.recarray)
    return sleep_state, reserve
