"""Experts for imitation learning: the actions of look-ahead or of a priority policy in environment copies."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from functools import cache
from itertools import pairwise
from typing import Any

import numba
import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode
from numba import types

from kilowait.cluster import Cluster
from kilowait.engine.gpu.state import RUNNING
from kilowait.engine.interface import PriorityPolicy
from kilowait.engine.jit_entry import PARAMETERS_TYPE, SCORE_FUNCTION_TYPE
from kilowait.engine.kernels.jit import compile_entry, nth_row
from kilowait.engine.kernels.state import State
from kilowait.envs.batch_env import BatchVectorEnv, DecisionSettings
from kilowait.envs.batched_sim import BatchedSimulator
from kilowait.envs.gpu_env import GpuVectorEnv
from kilowait.envs.kernels.decision_batch import queue_position
from kilowait.envs.kernels.lookahead import best_choice, copy_state
from kilowait.envs.kernels.step import NOTHING
from kilowait.envs.lookahead import LookAhead
from kilowait.errors import InputError
from kilowait.jobs import JobTable
from kilowait.rng import stream

Demonstrations = dict[str, npt.NDArray[Any]]


class LookAheadExpert:
    """The action that look-ahead would choose in each environment copy.

    Only observed jobs with an allowed action are candidates. Where the agent also chooses backfill candidates,
    look-ahead simulates these choices too.
    """

    def __init__(
        self,
        lookahead: LookAhead,
        simulator: BatchedSimulator,
        jobs: JobTable,
        cluster: Cluster,
        threads: int | None = None,
    ) -> None:
        """`jobs` and `cluster` are those of the environment; `threads`: None, one per core."""
        self.lookahead, self.simulator, self.jobs = lookahead, simulator, jobs
        self._scoring = lookahead.scoring(jobs, cluster)
        thread_count = max(1, min(threads or os.cpu_count() or 1, simulator.copies))
        first = State(*(array[0] for array in simulator.states))
        self._work_arrays = [lookahead.work_arrays(first) for _ in range(thread_count)]
        self._bounds = [simulator.copies * i // thread_count for i in range(thread_count + 1)]
        self._kernel = choice_kernel(simulator.states, simulator.buffers, self._work_arrays[0])
        self._pool = ThreadPoolExecutor(thread_count)

    def choose(self, selected: npt.NDArray[np.bool_] | None = None) -> npt.NDArray[np.int64]:
        """(copies,) an action for each copy; `NOTHING` for those that are not in `selected`."""
        simulator = self.simulator
        actions = np.zeros(simulator.copies, np.int64) if selected is None else np.where(selected, 0, NOTHING)
        futures = [
            self._pool.submit(
                self._kernel, simulator.states, simulator.buffers, work_arrays, actions, *self._scoring, lo, hi
            )
            for work_arrays, (lo, hi) in zip(self._work_arrays, pairwise(self._bounds), strict=True)
        ]
        for future in futures:
            future.result()
        self.lookahead.raise_on_nan(simulator.states, self.jobs)
        return actions

    def close(self) -> None:
        """Stop the threads."""
        self._pool.shutdown()


def record_demonstrations(
    jobs: JobTable,
    cluster: Cluster,
    decision_settings: DecisionSettings,
    lookahead: LookAhead,
    episodes: int,
    seed: int,
    *,
    episode_jobs: int = 256,
    copies: int = 32,
    threads: int | None = None,
) -> Demonstrations:
    """Demonstrations: observations and actions of look-ahead in episodes of `kilowait/Batch-v0`, one row per decision.

    Returns the observation (`jobs`, `mask`, `summary`, and `edges` with a graph), `action`, and `episode`, the number
    of the episode. The seed determines the windows. Rows are the same for any number of copies and threads, except
    their order.

    >>> import kilowait as kw
    >>> jobs = kw.lublin(300, 64, load=1.2, seed=1)
    >>> demonstrations = record_demonstrations(
    ...     jobs, kw.Cluster.from_nodes(64), DecisionSettings(queue_window=32), LookAhead(), 2, seed=0, episode_jobs=64
    ... )
    >>> bool((demonstrations["mask"][np.arange(len(demonstrations["action"])), demonstrations["action"]] == 1).all())
    True
    """
    if episodes < 1:
        raise InputError(f"episodes is {episodes}; give at least 1")
    vec = BatchVectorEnv(
        min(copies, episodes),
        jobs=jobs,
        cluster=cluster,
        episode_jobs=episode_jobs,
        autoreset_mode=AutoresetMode.DISABLED,
        threads=threads,
        **{field.name: getattr(decision_settings, field.name) for field in fields(decision_settings)},
    )
    simulator, buffers = vec.simulator, vec.simulator.buffers
    expert = LookAheadExpert(lookahead, simulator, vec.jobs, cluster, threads)
    windows = stream(seed, "envs.teaching").integers(0, len(vec.jobs) - episode_jobs + 1, episodes)
    pending = deque(enumerate(windows.tolist()))
    episode_of_copy = np.full(simulator.copies, -1)
    idle = np.ones(simulator.copies, np.bool_)
    rows: list[Demonstrations] = []
    while True:
        for copy in np.flatnonzero(idle):
            episode_of_copy[copy], buffers.copies["next_first"][copy] = pending.popleft() if pending else (-1, 0)
        starting = idle & (episode_of_copy >= 0)
        if starting.any():
            simulator.begin(starting)
        running = episode_of_copy >= 0
        if not running.any():
            break
        actions = expert.choose(running)
        deciding = running & buffers.mask.any(axis=1)  # an episode without a decision has an empty mask
        observation = {name: array[deciding] for name, array in simulator.observed(copy=False).items()}
        rows.append({**observation, "action": actions[deciding], "episode": episode_of_copy[deciding]})
        simulator.step(actions)
        idle = running & buffers.over
        episode_of_copy[idle] = -1
    vec.close()
    expert.close()
    return {name: np.concatenate([row[name] for row in rows]) for name in rows[0]}


def _choose(t: Any, buffers: Any, a: Any, actions: Any, score: Any, parameters: Any, lo: int, hi: int) -> None:
    """Replace the actions of copies `lo` to `hi` by the choice of look-ahead; actions below 0 stay."""
    for b in range(lo, hi):
        if actions[b] < 0:
            continue
        s = nth_row(t, b)
        k = s.clock[0]
        for i in range(k.queue_hi - k.queue_lo):
            a.slot[i] = -1
        for action in range(buffers.copies[b].shown):
            if buffers.mask[b, action] != 0:
                a.slot[queue_position(s, buffers.slots[b, action]) - k.queue_lo] = action
        copy_state(s, a, score, parameters)
        chosen = best_choice(a, score, parameters)
        actions[b] = a.slot[chosen] if chosen >= 0 else 0


@cache
def _compiled(states: Any, buffers: Any, work_arrays: Any) -> Callable[..., Any]:
    number = types.int64
    signature = types.void(
        states, buffers, work_arrays, types.int64[::1], SCORE_FUNCTION_TYPE, PARAMETERS_TYPE, number, number
    )
    return compile_entry(_choose, signature, "envs")


def choice_kernel(states: Any, buffers: Any, work_arrays: Any) -> Callable[..., Any]:
    """The kernel compiled for the types of these arrays."""
    if numba.config.DISABLE_JIT:
        return _compiled(types.int64, types.int64, types.int64)
    return _compiled(numba.typeof(states), numba.typeof(buffers), numba.typeof(work_arrays))


class GpuPolicyExpert:
    """Starts the first eligible job in the order of a priority policy, where placement puts it.

    Without preemption a waiting job has never run: srtf, srsf, las and tiresias order jobs with the estimate as
    remaining time and no attained service. With preemption the policy must be a preemptive one (srtf, srsf, las), and
    jobs are scored by their current state. The first waiting job starts; if it does not fit, the expert preempts the
    last running job that is behind it in the order and frees enough by itself; if there is none, it tries the next
    waiting job.
    """

    def __init__(self, policy: PriorityPolicy, vec: GpuVectorEnv) -> None:
        """`policy`: a policy whose order does not change while jobs wait, unless the environment has preemption."""
        self.vec = vec
        if vec.decision_settings.preempt:
            if not dict(policy.gpu_settings).get("preempt") or len(policy.parameters):
                raise InputError(
                    f"the expert {policy.name!r} does not preempt, but this environment does; use a preemptive "
                    "policy: srtf, srsf or las"
                )
            self._score = getattr(policy.score, "py_func", policy.score)
        else:
            self._rank = static_rank(policy, vec)

    def choose(self) -> npt.NDArray[np.int64]:
        """(copies,) an action for each copy; ties go to the job submitted first."""
        if self.vec.decision_settings.preempt:
            return self._choose_with_preemption()
        buffers, slots, choices = (
            self.vec.simulator.buffers,
            self.vec.decision_settings.queue_window,
            self.vec.observation_spec.choices,
        )
        shown = np.arange(slots) < buffers.copies["shown"][:, None]
        allowed = buffers.mask[:, : slots * choices].reshape(-1, slots, choices) == 1
        numbers = np.where(shown, buffers.slots[:, :slots], 0)
        rank = np.where(shown & allowed.any(axis=2), self._rank[buffers.copies["first"][:, None] + numbers], np.inf)
        slot = rank.argmin(axis=1)
        copies = np.arange(len(slot))
        choice = allowed[copies, slot].argmax(axis=1)  # the first allowed choice: that of placement, if it is allowed
        actions: npt.NDArray[np.int64] = np.where(
            np.isinf(rank[copies, slot]), buffers.mask.argmax(axis=1), slot * choices + choice
        )
        return actions

    def _choose_with_preemption(self) -> npt.NDArray[np.int64]:
        buffers, s, slots = (
            self.vec.simulator.buffers,
            self.vec.simulator.states,
            self.vec.decision_settings.queue_window,
        )
        choices, rows = self.vec.observation_spec.choices, self.vec.decision_settings.rows
        numbers = buffers.slots[:, :rows]
        copies = np.arange(len(numbers))[:, None]
        job_state = s.job_state[copies, numbers]
        seen: Any = self._job_records(job_state, s.jobs[copies, numbers], s.clock["now"])
        keys: npt.NDArray[np.float64] = np.asarray(self._score(seen, 0.0, np.zeros(0)))
        types = s.nodes[copies, s.places[copies, np.minimum(job_state["place_lo"], s.places.shape[1] - 1), 0]]["type"]
        actions = np.where(buffers.mask[:, -1] == 1, buffers.mask.shape[1] - 1, buffers.mask.argmax(axis=1))
        for b in range(len(numbers)):
            shown, victims = (int(buffers.copies["shown"][b]), slots + np.arange(int(buffers.copies["victims"][b])))
            for slot in np.argsort(keys[b, :shown], kind="stable"):
                allowed = buffers.mask[b, slot * choices : (slot + 1) * choices]
                if allowed.any():
                    actions[b] = slot * choices + allowed.argmax()
                    break
                waiting_job, running_jobs = job_state[b, slot], job_state[b, victims]
                eligible = keys[b, victims] > keys[b, slot]
                eligible &= s.speed[0, waiting_job["speed_class"], types[b, victims]] > 0
                for need in ("pieces", "gpus", "gpu_milli", "cpu", "memory"):
                    eligible &= running_jobs[need] >= waiting_job[need]
                if eligible.any():
                    last = victims[np.where(eligible, keys[b, victims], -np.inf).argmax()]
                    actions[b] = last * choices
                    break
        return actions.astype(np.int64)

    def _job_records(
        self, job_state: npt.NDArray[Any], seen: npt.NDArray[Any], now: npt.NDArray[np.float64]
    ) -> npt.NDArray[Any]:
        """The job records that a policy scores, at the current time."""
        runs = job_state["status"] == RUNNING
        records = seen.copy()
        records["attained_s"] = job_state["attained_s"] + np.where(runs, now - job_state["start_s"], 0.0)
        progress = np.where(runs & (now > job_state["since"]), (now - job_state["since"]) * job_state["rate"], 0.0)
        records["remaining_s"] = np.maximum(job_state["estimate_s"] - job_state["done"] - progress, 1.0)
        return records.view(np.recarray)

    def close(self) -> None:
        """Close the environment."""
        self.vec.close()


def static_rank(policy: PriorityPolicy, vec: GpuVectorEnv) -> npt.NDArray[np.float64]:
    """(jobs,) rank of every job of the log in the order of a policy, assuming that none has run yet."""
    if policy.half_life_s > 0:
        raise InputError(
            f"{policy.name!r} depends on the usage of users, so it has no static order to imitate; "
            "use srtf, sjf, qssf or another policy of the job alone"
        )
    values = policy.parameters if policy.prepare is None else policy.prepare(vec.jobs, vec.cluster)
    score, parameters = (getattr(policy.score, "py_func", policy.score), np.ascontiguousarray(values, np.float64))
    jobs = vec.simulator.log_arrays.jobs.copy().view(np.recarray)
    jobs["submit_s"] = vec.jobs["submit_s"]
    jobs["since_first_s"] = jobs["submit_s"] - jobs["submit_s"].min(initial=np.inf)
    jobs["remaining_s"] = np.maximum(jobs["estimate_s"], 1.0)
    orders = []
    last_s = float(jobs["submit_s"].max(initial=0.0))
    for overrun_planned_s in (0.0, 3600.0, 10 * 86400.0):
        jobs["waited_s"] = last_s + overrun_planned_s - jobs["submit_s"]
        scores = np.array([score(job, last_s + overrun_planned_s, parameters) for job in jobs], np.float64)
        orders.append(np.argsort(scores, kind="stable"))
    if any(not np.array_equal(orders[0], order) for order in orders[1:]):
        raise InputError(
            f"the order of {policy.name!r} changes while jobs wait; an expert on a GPU cluster must be a policy with a "
            "static order, such as srtf, sjf or qssf"
        )
    rank = np.empty(len(jobs))
    rank[orders[0]] = np.arange(len(jobs))
    return rank
