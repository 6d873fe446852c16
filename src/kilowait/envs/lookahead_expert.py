"""Look-ahead as an expert: its actions in environment copies, and demonstrations for imitation learning."""

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
from kilowait.engine.jit_entry import PARAMETERS_TYPE, SCORE_FUNCTION_TYPE
from kilowait.engine.kernels.jit import compile_entry
from kilowait.engine.kernels.state import State
from kilowait.envs.batched_sim import DecisionSettings
from kilowait.envs.batched_sim_base import NOTHING, BatchedSimulatorBase
from kilowait.envs.kernels.batch_env_decision import queue_position
from kilowait.envs.kernels.batch_env_states import nth_state
from kilowait.envs.kernels.batch_env_step import buffers_without_refcount
from kilowait.envs.kernels.lookahead import best_choice, copy_state, lookahead_without_refcount
from kilowait.envs.lookahead import LookAhead
from kilowait.envs.vector_env import BatchVectorEnv
from kilowait.errors import InputError
from kilowait.jobs import JobTable
from kilowait.rng import stream

__all__ = ["LookAheadExpert", "record_demonstrations"]

Demonstrations = dict[str, npt.NDArray[Any]]


class LookAheadExpert:
    """The action that look-ahead would choose in each environment copy.

    Only observed jobs with an allowed action are candidates. Where the agent also chooses backfill candidates,
    look-ahead simulates these choices too.
    """

    def __init__(
        self,
        lookahead: LookAhead,
        simulator: BatchedSimulatorBase,
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
    buffers = buffers_without_refcount(buffers)
    a = lookahead_without_refcount(a)
    for b in range(lo, hi):
        if actions[b] < 0:
            continue
        s = nth_state(t, b)
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
