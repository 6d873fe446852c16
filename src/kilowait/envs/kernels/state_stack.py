"""States of all environment copies: every array of the engine's state with one row per copy.

An episode is a window of consecutive jobs of the log on an empty machine. The job arrays are prepared once for the
whole log; a new episode copies the rows of its window and resets the engine state, inside compiled code.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numba
import numpy as np
import numpy.typing as npt
from numba import types

from kilowait.engine.interface import JOB
from kilowait.engine.jit_entry import PARAMETERS_TYPE, SCORE_FUNCTION_TYPE
from kilowait.engine.kernels.jit import compile_entry, kernel, noinline
from kilowait.engine.kernels.state import NODE_CHANGE, PowerState, State

if TYPE_CHECKING:
    from kilowait.envs.power_setup import PowerSetup

S = TypeVar("S", bound=Any)

NEXT_STEP, SAME_STEP, DISABLED = 0, 1, 2
"""When the next episode begins, as Gymnasium's `AutoresetMode` defines it."""

COPY_RECORD = np.dtype(
    [
        ("first", np.int64),  # first row of the episode in the log
        ("next_first", np.int64),  # first row of the next episode
        ("jobs", np.int64),  # jobs to start; those that fit no group are left out
        ("phase", np.int64),  # phase of the scheduling pass, see decision
        ("shown", np.int64),  # jobs in the slots; the next observation clears their rows, also in another episode
        ("counted", np.int64),  # started jobs whose costs are in `settled`
        ("steps", np.int64),
        ("invalid", np.int64),  # forbidden actions, which were replaced
        ("over", np.int64),
        ("arrival_rate", np.float64),  # factor on the arrival rate of the log
        ("total", np.float64),  # reward of the episode so far
    ],
    align=True,
)
"""Data of a copy beside the engine state."""


ENV_SETTINGS = np.dtype(
    [
        ("nodes", np.float64),  # nodes of the machine
        ("max_wait_s", np.float64),  # a job that has waited longer must be chosen first
        ("sla_s", np.float64),
        ("agent_backfills", np.int64),  # the agent chooses backfill candidates too
        ("hold", np.int64),  # the last action starts no job
        ("autoreset", np.int64),
    ],
    align=True,
)
"""Settings shared by all copies."""


POWER_COPY_RECORD = np.dtype(
    [(name, COPY_RECORD[name]) for name in COPY_RECORD.names or ()]
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

POWER_ENV_SETTINGS = np.dtype(
    [(name, ENV_SETTINGS[name]) for name in ENV_SETTINGS.names or ()]
    + [
        ("levels", np.int64),  # DVFS states to choose from
        ("sleep_actions", np.int64),  # there are sleep and wake actions
        ("wake_ahead", np.int64),  # nodes boot in time for reservations
        ("signals", np.int64),  # bits: carbon, price
        ("keep_node_steps", np.int64),  # node state changes are kept for a log
        ("rows", np.int64),  # maximum node state changes of one instant
        ("hold_s", np.float64),  # maximum duration of the hold action
        ("max_wait_for_hold_s", np.float64),  # a job that has waited longer is not held
    ],
    align=True,
)
"""Settings shared by all copies."""

SPARE = 4096
_SHARED = ("reserve",)
_BLANK = ("idle", "shutting_down", "booting", "node_changes")


class StepBuffers(NamedTuple):
    """Observations, rewards and bookkeeping; one row per copy."""

    env_settings: npt.NDArray[Any]  # (1,) ENV_SETTINGS
    weights: npt.NDArray[np.float64]  # (terms,)
    copies: npt.NDArray[Any]  # (B,) COPY
    jobs: npt.NDArray[np.float32]  # (B, slots, features)
    mask: npt.NDArray[np.int8]  # (B, actions)
    summary: npt.NDArray[np.float32]  # (B, summary)
    slots: npt.NDArray[np.int64]  # (B, slots) shown jobs, numbered from 0 in the episode
    edges: npt.NDArray[np.uint8]  # (B, slots, slots) or (B, 0, 0)
    reward: npt.NDArray[np.float64]  # (B,)
    terms: npt.NDArray[np.float64]  # (B, terms) of this step
    settled: npt.NDArray[np.float64]  # (B, sums) of the jobs that have started (GPU clusters: finished), see reward
    accrued: npt.NDArray[np.float64]  # (B, terms) up to the last step
    over: npt.NDArray[np.bool_]  # (B,)
    last_summary: npt.NDArray[np.float32]  # (B, summary) at the end of the episode, where it began anew at once
    cut: npt.NDArray[np.bool_]  # (B,) whether the episode was truncated
    finished: npt.NDArray[np.float64]  # (B, 3 + terms) of an episode that ended: return, steps, replaced actions, terms
    own: Any = ()  # named tuple of arrays that only this environment has


class LogArrays(NamedTuple):
    """Prepared arrays of the whole log, from which episodes are copied."""

    jobs: npt.NDArray[Any]  # (N,) interface.JOB
    job_state: npt.NDArray[Any]  # (N,) JOB_STATE
    need: npt.NDArray[np.int64]  # (N, K)
    features: npt.NDArray[np.float32]  # (N, FIXED), or more: see observation.COLUMNS
    user: npt.NDArray[np.int64]  # (N,) numbered without gaps
    account: npt.NDArray[np.int64]  # (N,)
    order: npt.NDArray[np.float64]  # (N,) scores of the backfill order
    clock: npt.NDArray[Any]  # (1,) RUN_STATE before the first event
    pools: npt.NDArray[Any]  # (P,) POOL of the empty machine
    by_user: npt.NDArray[np.int64]  # (copies, users) scratch: jobs of each user in the episode
    user_weight: npt.NDArray[np.float64]  # (copies, n) 1 / (users x jobs of this one's user)
    own: Any = ()  # named tuple of arrays that only this environment has


class PowerArrays(NamedTuple):
    """Power of the jobs and nodes, and signals: `LogArrays.own`."""

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
    edge_s: npt.NDArray[np.float64]  # as in power_setup.SignalArrays
    value: npt.NDArray[np.float64]
    area: npt.NDArray[np.float64]
    forecasts: npt.NDArray[np.float32]
    choosable: npt.NDArray[np.int8]  # (copies, slots) scratch: which shown jobs may be chosen


def stack_states(state: S, copies: int, *, shared: Collection[str] = (), blank: Collection[str] = ()) -> S:
    """`copies` copies of this named tuple of arrays, one per row; `jit.nth_row` returns each of them.

    Arrays in `shared` are only read, and have one row. Those in `blank` are written before they are read: their
    untouched pages take no memory.
    """
    rows: dict[str, Any] = {}
    for name, array in state._asdict().items():
        plain = np.asarray(array)
        if name in blank:
            rows[name] = np.zeros((copies, *plain.shape), plain.dtype)
        else:
            rows[name] = np.repeat(plain[None], 1 if name in shared else copies, axis=0)
        if plain.dtype.names:
            rows[name] = rows[name].view(np.recarray)
    return type(state)(**rows)


def prepare_log_arrays(
    state: State, features: Any, user: Any, account: Any, order: Any, jobs: int, copies: int
) -> LogArrays:
    """What episodes of `jobs` jobs are copied from: the state of the whole log before its first event."""
    users = int(user.max()) + 1 if len(user) else 1
    return LogArrays(
        jobs=state.jobs,
        job_state=state.job_state,
        need=state.need.copy(),
        features=features,
        user=user,
        account=account,
        order=order,
        clock=state.clock.copy(),
        pools=state.pools.copy(),
        by_user=np.zeros((copies, users), np.int64),
        user_weight=np.zeros((copies, jobs)),
    )


@noinline
def reset(s: Any, a: Any, source: Any, b: int) -> None:
    """Begin the next episode of the copy: the window of the log at `next_first`, on the empty machine."""
    copy = a.copies[b]
    n = len(s.jobs)
    lo = copy.next_first
    copy.first = lo
    s.clock[0] = source.clock[0]
    k = s.clock[0]
    first_s = source.job_state[lo].earliest_s
    k.first_submit_s = first_s
    k.now = first_s
    for p in range(len(s.pools)):
        s.pools[p] = source.pools[p]
    counts = source.by_user[b]
    copy.jobs = 0
    users = 0
    for job in range(n):
        s.jobs[job] = source.jobs[lo + job]
        s.job_state[job] = source.job_state[lo + job]
        job_state = s.job_state[job]
        job_state.earliest_s = first_s + (job_state.earliest_s - first_s) / copy.arrival_rate
        for column in range(s.need.shape[1]):
            s.need[job, column] = source.need[lo + job, column]
        s.arrivals[job] = job
        if job_state.allowed != 0:
            copy.jobs += 1
            user = source.user[lo + job]
            users += 1 if counts[user] == 0 else 0
            counts[user] += 1
    for job in range(n):
        if s.job_state[job].allowed != 0:
            source.user_weight[b, job] = 1.0 / (users * counts[source.user[lo + job]])
    for job in range(n):
        counts[source.user[lo + job]] = 0
    copy.phase = 0
    copy.counted = 0
    copy.steps = 0
    copy.invalid = 0
    copy.over = 0
    copy.total = 0.0


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


def stack_power_states(state: PowerState, copies: int) -> PowerState:
    """`copies` copies of this state, one per row."""
    return stack_states(state, copies, shared=_SHARED, blank=_BLANK)


def single_row_stack(state: PowerState) -> PowerState:
    """A stack of this single state, which shares its arrays."""
    return PowerState(*(array[None] for array in state))  # type: ignore[arg-type]


def with_power_arrays(
    plain: LogArrays, state: PowerState, power_setup: PowerSetup, slots: int, copies: int
) -> LogArrays:
    """The log arrays with power and signals, from the state of the whole log before its first event."""
    tables, signals = power_setup.power_tables, power_setup.signal_arrays
    own = PowerArrays(
        power_control_state=state.power_control_state.copy(),
        factor=state.factor,
        watts=state.watts,
        least_watts=state.least_watts,
        run_s=state.run_s,
        planned_s=state.planned_s,
        sleep_state=state.sleep_state.copy(),
        above_w=tables.above_w,
        kind=tables.kind,
        may=tables.may,
        state_w=tables.state_w,
        building=power_setup.building.view(np.recarray),
        **signals._asdict(),
        choosable=np.zeros((copies, slots), np.int8),
    )
    features = np.ascontiguousarray(np.concatenate((plain.features, tables.features), axis=1))
    return plain._replace(features=features, own=own)


@kernel
def integrals(signals: Any, time: float) -> tuple[float, float, int]:
    """Integrals of carbon intensity and price up to `time`, and the step; the last step has no end."""
    lo = 0
    hi = len(signals.edge_s)
    while hi - lo > 1:
        middle = (lo + hi) >> 1
        if signals.edge_s[middle] <= time:
            lo = middle
        else:
            hi = middle
    elapsed_s = time - signals.edge_s[lo]
    carbon = signals.area[lo, 0] + signals.value[lo, 0] * elapsed_s
    price = signals.area[lo, 1] + signals.value[lo, 1] * elapsed_s
    return carbon, price, lo


@noinline
def reset_with_power(s: Any, a: Any, source: Any, b: int) -> None:
    """Begin the next episode of the copy: the window of the log at `next_first`, on the empty machine, all awake."""
    reset(s, a, source, b)
    copy = a.copies[b]
    power = source.own
    lo = copy.first
    s.power_control_state[0] = power.power_control_state[0]
    for g in range(len(s.sleep_state)):
        s.sleep_state[g] = power.sleep_state[g]
    levels = s.factor.shape[2]
    for job in range(len(s.jobs)):
        s.run_s[job] = power.run_s[lo + job]
        s.planned_s[job] = power.planned_s[lo + job]
        s.preferred_level[job] = 0
        if len(s.least_watts) > 0:
            s.least_watts[job] = power.least_watts[lo + job]
        for g in range(s.watts.shape[0]):
            for level in range(levels):
                s.watts[g, job, level] = power.watts[g, lo + job, level]
    if power.factor.shape[1] > 1:
        for g in range(len(s.groups)):
            for job in range(len(s.jobs)):
                for level in range(levels):
                    s.factor[g, job, level] = power.factor[g, lo + job, level]
    copy.sleep_decided = 0
    copy.hold_end_s = -np.inf
    copy.counted_node_steps = 0
    copy.nodes_w = 0.0
    copy.nodes_j = 0.0
    copy.nodes_carbon = 0.0
    copy.nodes_price = 0.0
    carbon, price, _ = integrals(power, s.clock[0].now)
    copy.first_carbon = carbon
    copy.first_price = price


def _score_all(jobs: Any, out: Any, score: Any, parameters: Any) -> None:
    for i in range(len(jobs)):
        out[i] = score(jobs[i], jobs[i].submit_s, parameters)


@cache
def static_score_kernel() -> Callable[..., Any]:
    """Kernel (jobs, out, score, parameters): score of each job by a static policy, at its submission."""
    records = types.Array(numba.from_dtype(JOB), 1, "C")
    return compile_entry(
        _score_all, types.void(records, types.float64[::1], SCORE_FUNCTION_TYPE, PARAMETERS_TYPE), "envs"
    )
