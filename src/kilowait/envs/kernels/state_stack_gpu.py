"""States of all environment copies of a GPU cluster: every array of the state with one row per copy.

Copies share the arrays that are constant in a run (speeds, type orders, node types). The job arrays are prepared once
for the whole log; a new episode copies the rows of its window, inside compiled code. The row after the last job is a
dummy job, refused on arrival, which arrives at the horizon: its event stops the simulation there.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from kilowait.engine.gpu.state import REJECTED, GpuState
from kilowait.engine.kernels.jit import kernel, noinline
from kilowait.envs.kernels.state_stack import stack_states
from kilowait.envs.observation_spec import gpu_fixed_features, priority_weights, usable_node_types

GPU_COPY_RECORD = np.dtype(
    [
        ("first", np.int64),  # first row of the episode in the log
        ("next_first", np.int64),  # first row of the next episode
        ("jobs", np.int64),  # jobs to finish; those that fit no nodes are left out
        ("phase", np.int64),  # phase of the scheduling pass, see decision
        ("shown", np.int64),  # waiting jobs in the slots
        ("victims", np.int64),  # running jobs in the slots
        ("alive", np.int64),  # unfinished jobs that have arrived
        ("known", np.int64),  # arrivals that are counted
        ("moment", np.int64),  # counts changes of free resources, over all episodes
        ("steps", np.int64),
        ("invalid", np.int64),  # forbidden actions, which were replaced
        ("over", np.int64),
        ("first_s", np.float64),
        ("until_s", np.float64),  # horizon of the episode
        ("arrival_rate", np.float64),  # factor on the arrival rate of the log
        ("weight", np.float64),  # sum of the weights in the term `priority`
        ("total", np.float64),  # reward of the episode so far
    ],
    align=True,
)
"""Data of a copy beside the engine state."""

SHARED = frozenset(
    "by_type type_lo speed factor max_node_gpus type_order type_rank interference typical_jobs label_types".split()
)
"""Read-only arrays of the state, shared by all copies."""

SCORE_CACHE_BYTES = 1 << 28
"""Memory for cached node scores of all copies together; further rows are computed again."""


GPU_ENV_SETTINGS = np.dtype(
    [
        ("gpus", np.float64),  # GPUs of the machine, at least 1
        ("widest", np.float64),  # GPUs of the largest node, at least 1
        ("max_wait_s", np.float64),  # a job that has waited longer must be chosen first
        ("sla_s", np.float64),
        ("horizon_s", np.float64),
        ("choices", np.int64),  # ways to start a job
        ("by_type", np.int64),  # the agent chooses the type
        ("hold", np.int64),  # the last action starts no job
        ("victims", np.int64),  # slots of running jobs
        ("starts", np.int64),  # maximum starts of a job
        ("autoreset", np.int64),
    ],
    align=True,
)
"""Settings shared by all copies."""


class GpuBuffers(NamedTuple):
    """Arrays beside those of `StepBuffers`, one row per copy: `StepBuffers.own`."""

    free: npt.NDArray[np.int64]  # (B, types or 0, 2) scratch: thousandths of GPUs and of cores that are free
    fitting_cache: npt.NDArray[np.int64]  # (B, job shapes, 2) moment, types on which they fit
    alive: npt.NDArray[np.int64]  # (B, jobs) unfinished jobs
    # (B, jobs) segments whose loss is not counted yet, -1: none; (B, 0) without preemption
    pending_losses: npt.NDArray[np.int64]
    last_jobs: npt.NDArray[np.float32]  # as jobs, mask and edges, at the end of an episode where the next
    last_mask: npt.NDArray[np.int8]  # began at once; (0, ...) without a horizon
    last_edges: npt.NDArray[np.uint8]


class GpuLogArrays(NamedTuple):
    """Prepared arrays of the whole log, from which episodes are copied."""

    job_state: npt.NDArray[Any]  # (N,) JOB_STATE
    jobs: npt.NDArray[Any]  # (N,) GPU_JOB
    features: npt.NDArray[np.float32]  # (N, FIXED and speeds)
    area: npt.NDArray[np.float32]  # (N,) `work` of MOVING before it has started
    weight: npt.NDArray[np.float64]  # (N,) in the term `priority`
    may: npt.NDArray[np.int64]  # (kinds,) allowed types, as bits
    clock: npt.NDArray[Any]  # (1,) RUN_STATE before the first event
    nodes: npt.NDArray[Any]  # (nodes,) NODE of the empty machine
    codes: npt.NDArray[np.int64]  # placements that can be chosen
    type_milli: npt.NDArray[np.float64]  # (types,) thousandths of GPUs
    type_cpu: npt.NDArray[np.float64]  # (types,) thousandths of cores


def prepare_log_arrays(whole: GpuState, codes: npt.NDArray[np.int64]) -> GpuLogArrays:
    """The log arrays, from the state of the whole log before its first event."""
    nodes, types = whole.nodes, whole.speed.shape[1]
    gpus = max(int(nodes["gpus"].sum()), 1)
    area = whole.job_state["estimate_s"] * whole.jobs["gpu_share"] / (gpus * 3600.0)
    return GpuLogArrays(
        job_state=whole.job_state.copy(),
        jobs=whole.jobs.copy(),
        features=gpu_fixed_features(whole),
        area=np.ascontiguousarray(np.log1p(area) / 3.0, np.float32),
        weight=priority_weights(whole),
        may=usable_node_types(whole),
        clock=whole.clock.copy(),
        nodes=nodes.copy(),
        codes=codes,
        type_milli=np.bincount(nodes["type"], nodes["gpu_milli"], types).astype(np.float64),
        type_cpu=np.bincount(nodes["type"], nodes["cpu"], types).astype(np.float64),
    )


def with_capacity(state: GpuState, starts: int) -> GpuState:
    """The state with arrays large enough for `starts` starts of every job."""
    n, pieces = len(state.job_state), len(state.places)
    capacity = {"events": 8 * n + 256, "segments": n * (starts + 2) + 64, "log": pieces * (starts + 2) + n + 64}
    bigger = {name: np.zeros(size, getattr(state, name).dtype).view(np.recarray) for name, size in capacity.items()}
    return state._replace(**bigger)


def window_state(whole: GpuState, jobs: int, starts: int, copies: int) -> GpuState:
    """An empty state for any window of `jobs` jobs of the log, and the dummy job."""
    pieces = np.concatenate(([0], np.cumsum(whole.job_state["pieces"])))
    max_pieces = int((pieces[jobs:] - pieces[:-jobs]).max())
    rows = len(whole.score_cache)
    if len(whole.typical_jobs):
        rows = min(rows, max(1, SCORE_CACHE_BYTES // (copies * 24 * len(whole.nodes))))
    n = jobs + 1

    def empty(array: Any, size: int) -> Any:
        arrays: Any = np.zeros((size, *array.shape[1:]), array.dtype)
        return arrays.view(np.recarray) if arrays.dtype.names else arrays

    sizes = dict.fromkeys(("job_state", "jobs", "arrivals", "queue", "order", "victims", "claimed"), n)
    sizes |= {"running_jobs": n + 1, "ending_jobs": n + 1, "places": max_pieces}
    arrays = {name: empty(getattr(whole, name), size) for name, size in sizes.items()}
    score_cache = {
        name: getattr(whole, name)[:rows].copy() for name in ("score_cache", "score_cache_gpus", "score_cache_stamp")
    }
    return with_capacity(whole._replace(**arrays, **score_cache), starts)


def stack_gpu_states(state: GpuState, copies: int) -> GpuState:
    """`copies` copies of this state, one per row."""
    return stack_states(state, copies, shared=SHARED)


@noinline
def reset(s: Any, a: Any, source: Any, b: int) -> None:
    """Begin the next episode of the copy: the window of the log at `next_first`, on the empty machine."""
    copy = a.copies[b]
    pending_losses = a.own.pending_losses[b]
    n = len(s.job_state) - 1
    lo = copy.next_first
    copy.first = lo
    _empty_machine(s, source)
    k = s.clock[0]
    first_s = source.job_state[lo].arrival_s
    piece_lo = source.job_state[lo].place_lo
    k.first_submit_s = first_s
    copy.first_s = first_s
    copy.until_s = first_s + a.env_settings[0].horizon_s
    copy.weight = 0.0
    refused = 0
    for job in range(n):
        s.job_state[job] = source.job_state[lo + job]
        s.jobs[job] = source.jobs[lo + job]
        job_state = s.job_state[job]
        job_state.arrival_s = first_s + (job_state.arrival_s - first_s) / copy.arrival_rate
        job_state.place_lo -= piece_lo
        if job_state.status == REJECTED:
            s.arrivals[refused] = job
            refused += 1
        else:
            copy.weight += source.weight[lo + job]
    s.job_state[n] = source.job_state[lo]
    dummy = s.job_state[n]
    dummy.arrival_s = copy.until_s
    dummy.status = REJECTED
    position = refused
    dummy_placed = False
    for job in range(n):
        if s.job_state[job].status != REJECTED:
            if not dummy_placed and s.job_state[job].arrival_s > copy.until_s:
                s.arrivals[position] = n
                position += 1
                dummy_placed = True
            s.arrivals[position] = job
            position += 1
    if not dummy_placed:
        s.arrivals[n] = n
    k.next_arrival = refused
    copy.jobs = n - refused
    copy.known = refused
    copy.phase = 0
    copy.alive = 0
    copy.moment += 1
    copy.steps = 0
    copy.invalid = 0
    copy.over = 0
    copy.total = 0.0
    for job in range(len(pending_losses)):
        pending_losses[job] = -1


@kernel
def _empty_machine(s: Any, source: Any) -> None:
    """Empty the machine. Counters that invalidate caches continue, so that no cached value is reused."""
    k = s.clock[0]
    releases = k.releases
    passes = k.passes
    s.clock[0] = source.clock[0]
    k.releases = releases + 1
    k.passes = passes + 1
    for i in range(len(s.nodes)):
        version = s.nodes[i].version
        s.nodes[i] = source.nodes[i]
        s.nodes[i].version = version + 1
        for c in range(s.classes.shape[1]):
            s.classes[i, c] = 0
    for g in range(len(s.gpu_free)):
        s.gpu_free[g] = 1000
        s.gpu_load[g] = 0
        s.gpu_first[g] = -1
        s.gpu_jobs[g] = 0
        s.gpu_changed[g] = False
