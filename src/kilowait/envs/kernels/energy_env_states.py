"""States of all environment copies with power controls; as `envs.kernels.batch_env_states`."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from kilowait.engine.kernels.jit import kernel, noinline, specialize, without_refcount
from kilowait.engine.kernels.state_with_power_controls import NODE_CHANGE, PowerState, power_state_without_refcount
from kilowait.envs.kernels import batch_env_states
from kilowait.envs.power.power_setup import PowerSetup

__all__ = [
    "ENERGY_COPY_RECORD",
    "integrals",
    "log_arrays_without_refcount",
    "max_node_steps",
    "nth_state",
    "reset",
    "with_capacity",
    "single_row_stack",
    "prepare_log_arrays",
    "stack_states",
]

ENERGY_COPY_RECORD = np.dtype(
    [(name, batch_env_states.COPY_RECORD[name]) for name in batch_env_states.COPY_RECORD.names or ()]
    + [
        ("sleep_decided", np.int64),  # sleep and wake were decided in this pass
        ("hold_end_s", np.float64),  # end of the current hold
        ("counted_node_steps", np.int64),  # node state changes that are counted
        ("nodes_w", np.float64),  # watts they add to the nodes,
        ("nodes_j", np.float64),  # joules they would have added since the beginning,
        ("nodes_carbon", np.float64),  # watts x carbon intensity x s,
        ("nodes_price", np.float64),  # watts x price x s
        ("first_carbon", np.float64),  # integrals of the signals up to the beginning of the episode
        ("first_price", np.float64),
    ],
    align=True,
)
"""Data of a copy beside the engine state."""

SPARE = 4096
_SHARED = ("reserve",)
_EMPTY = ("idle", "shutting_down", "booting", "node_changes")
"""Written before they are read: untouched pages take no memory."""


class PowerLogArrays(NamedTuple):
    """Prepared arrays of the whole log, its power, and the signals."""

    jobs: npt.NDArray[Any]  # as in batch_env_states.LogArrays
    job_state: npt.NDArray[Any]
    need: npt.NDArray[np.int64]
    features: npt.NDArray[np.float32]  # (N, FIXED + 3), with predictions three more
    user: npt.NDArray[np.int64]
    account: npt.NDArray[np.int64]
    order: npt.NDArray[np.float64]
    clock: npt.NDArray[Any]
    pools: npt.NDArray[Any]
    by_user: npt.NDArray[np.int64]
    user_weight: npt.NDArray[np.float64]
    power_control_state: npt.NDArray[Any]  # (1,) POWER_CONTROL_STATE before the first event
    factor: npt.NDArray[np.float64]  # (G, N, L), or (G, 1, L) where all jobs have the same
    watts: npt.NDArray[np.int64]  # (G, N, L), or (0, 0, 0) without a budget
    least_watts: npt.NDArray[np.int64]  # (N,) or (0,)
    run_s: npt.NDArray[np.float64]  # (N,)
    planned_s: npt.NDArray[np.float64]  # (N,)
    sleep_state: npt.NDArray[Any]  # (G,) SLEEP_STATE before the first event
    above_w: npt.NDArray[np.float64]  # as in power_setup.PowerTables
    kind: npt.NDArray[np.int64]
    may: npt.NDArray[np.uint8]
    state_w: npt.NDArray[np.float64]
    building: npt.NDArray[Any]  # (1,) POWER
    edge_s: npt.NDArray[np.float64]  # as in signal_features.SignalArrays
    value: npt.NDArray[np.float64]
    area: npt.NDArray[np.float64]
    forecasts: npt.NDArray[np.float32]
    choosable: npt.NDArray[np.int8]  # (copies, slots) scratch: which shown jobs may be chosen


def max_node_steps(state: PowerState) -> int:
    """Maximum number of node state changes in one instant: a few per start, node and group."""
    if not state.power_control_state["sleeps"][0]:
        return 0
    nodes = int(state.pools["capacity"][state.groups["pool_lo"]].sum())
    return 4 * len(state.jobs) + 8 * nodes + 16 * len(state.groups) + 16


def with_capacity(state: PowerState) -> PowerState:
    """The state with an array for the node state changes of several instants."""
    rows = max_node_steps(state)
    node_changes = np.zeros(rows + SPARE if rows else 0, NODE_CHANGE).view(np.recarray)
    return state._replace(node_changes=node_changes)


def stack_states(state: PowerState, copies: int) -> PowerState:
    """`copies` copies of this state, one per row; read-only arrays are shared."""
    rows: dict[str, Any] = {}
    for name, array in state._asdict().items():
        plain = np.asarray(array)
        if name in _SHARED:
            rows[name] = array
        elif name in _EMPTY:
            rows[name] = np.zeros((copies, *plain.shape), plain.dtype).view(type(array))
        else:
            rows[name] = np.repeat(plain[None], copies, axis=0).view(type(array))
    return PowerState(**rows)


def single_row_stack(state: PowerState) -> PowerState:
    """A stack of this single state, which shares its arrays."""
    return PowerState(**{name: array if name in _SHARED else array[None] for name, array in state._asdict().items()})


def prepare_log_arrays(
    state: PowerState, plain: batch_env_states.LogArrays, power_setup: PowerSetup, slots: int, copies: int
) -> PowerLogArrays:
    """The log arrays, from the state of the whole log before its first event."""
    power_tables = power_setup.power_tables
    arrays = plain._replace(
        features=np.ascontiguousarray(np.concatenate((plain.features, power_tables.features), axis=1))
    )
    return PowerLogArrays(
        *arrays,
        power_control_state=state.power_control_state.copy(),
        factor=state.factor,
        watts=state.watts,
        least_watts=state.least_watts,
        run_s=state.run_s,
        planned_s=state.planned_s,
        sleep_state=state.sleep_state.copy(),
        above_w=power_tables.above_w,
        kind=power_tables.kind,
        may=power_tables.may,
        state_w=power_tables.state_w,
        building=power_setup.building.view(np.recarray),
        edge_s=power_setup.signal_arrays.edge_s,
        value=power_setup.signal_arrays.value,
        area=power_setup.signal_arrays.area,
        forecasts=power_setup.signal_arrays.forecasts,
        choosable=np.zeros((copies, slots), np.int8),
    )


@kernel
def log_arrays_without_refcount(a: Any) -> PowerLogArrays:
    """The log arrays without reference counts."""
    return PowerLogArrays(
        without_refcount(a.jobs),
        without_refcount(a.job_state),
        without_refcount(a.need),
        without_refcount(a.features),
        without_refcount(a.user),
        without_refcount(a.account),
        without_refcount(a.order),
        without_refcount(a.clock),
        without_refcount(a.pools),
        without_refcount(a.by_user),
        without_refcount(a.user_weight),
        without_refcount(a.power_control_state),
        without_refcount(a.factor),
        without_refcount(a.watts),
        without_refcount(a.least_watts),
        without_refcount(a.run_s),
        without_refcount(a.planned_s),
        without_refcount(a.sleep_state),
        without_refcount(a.above_w),
        without_refcount(a.kind),
        without_refcount(a.may),
        without_refcount(a.state_w),
        without_refcount(a.building),
        without_refcount(a.edge_s),
        without_refcount(a.value),
        without_refcount(a.area),
        without_refcount(a.forecasts),
        without_refcount(a.choosable),
    )


@kernel
def nth_state(t: Any, copy: int) -> PowerState:
    """The state of one copy, as the engine kernels take it."""
    s = power_state_without_refcount(t)
    return PowerState(
        s.clock[copy],
        s.jobs[copy],
        s.job_state[copy],
        s.job_extra[copy],
        s.need[copy],
        s.arrivals[copy],
        s.groups[copy],
        s.pools[copy],
        s.preference[copy],
        s.changes[copy],
        s.announcements[copy],
        s.segments[copy],
        s.events[copy],
        s.queue[copy],
        s.new_arrivals[copy],
        s.expected_ends[copy],
        s.candidates[copy],
        s.timeline_s[copy],
        s.timeline_free[copy],
        s.usage[copy],
        s.power_control_state[copy],
        s.factor[copy],
        s.watts[copy],
        s.least_watts[copy],
        s.preferred_level[copy],
        s.run_s[copy],
        s.planned_s[copy],
        s.hold_until_s[copy],
        s.reserved_level[copy],
        s.sleep_state[copy],
        s.idle[copy],
        s.shutting_down[copy],
        s.booting[copy],
        s.reserve,
        s.node_changes[copy],
    )


@kernel
def integrals(source: Any, time: float) -> tuple[float, float, int]:
    """Integrals of carbon intensity and price up to `time`, and the step; the last step has no end."""
    lo = 0
    hi = len(source.edge_s)
    while hi - lo > 1:
        middle = (lo + hi) >> 1
        if source.edge_s[middle] <= time:
            lo = middle
        else:
            hi = middle
    elapsed_s = time - source.edge_s[lo]
    carbon = source.area[lo, 0] + source.value[lo, 0] * elapsed_s
    price = source.area[lo, 1] + source.value[lo, 1] * elapsed_s
    return carbon, price, lo


_reset = specialize(
    batch_env_states.reset,
    state_without_refcount=power_state_without_refcount,
    log_arrays_without_refcount=log_arrays_without_refcount,
)


@noinline
def reset(s: Any, copy: Any, source: Any, row: int) -> None:
    """Begin the next episode of the copy: the window of the log at `next_first`, on the empty machine, all awake."""
    s = power_state_without_refcount(s)
    source = log_arrays_without_refcount(source)
    _reset(s, copy, source, row)
    lo = copy.first
    s.power_control_state[0] = source.power_control_state[0]
    for g in range(len(s.sleep_state)):
        s.sleep_state[g] = source.sleep_state[g]
    levels = s.factor.shape[2]
    for job in range(len(s.jobs)):
        s.run_s[job] = source.run_s[lo + job]
        s.planned_s[job] = source.planned_s[lo + job]
        s.preferred_level[job] = 0
        if len(s.least_watts) > 0:
            s.least_watts[job] = source.least_watts[lo + job]
        for g in range(s.watts.shape[0]):
            for level in range(levels):
                s.watts[g, job, level] = source.watts[g, lo + job, level]
    if source.factor.shape[1] > 1:
        for g in range(len(s.groups)):
            for job in range(len(s.jobs)):
                for level in range(levels):
                    s.factor[g, job, level] = source.factor[g, lo + job, level]
    copy.sleep_decided = 0
    copy.hold_end_s = -np.inf
    copy.counted_node_steps = 0
    copy.nodes_w = 0.0
    copy.nodes_j = 0.0
    copy.nodes_carbon = 0.0
    copy.nodes_price = 0.0
    carbon, price, _ = integrals(source, s.clock[0].now)
    copy.first_carbon = carbon
    copy.first_price = price
