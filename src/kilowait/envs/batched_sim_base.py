"""Base class of the batched simulators: many simulations side by side, advanced by one compiled call a step."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.errors import InputError

__all__ = [
    "BEGIN",
    "DISABLED",
    "NEXT_STEP",
    "NOTHING",
    "SAME_STEP",
    "START_PREPARED",
    "BatchedSimulatorBase",
    "Observation",
]

Observation = dict[str, npt.NDArray[Any]]
Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

NEXT_STEP, SAME_STEP, DISABLED = 0, 1, 2
"""When the next episode begins, as Gymnasium's `AutoresetMode` defines it."""
BEGIN, NOTHING, START_PREPARED = -1, -2, -3
"""Codes in place of an action: begin the next episode; leave the copy unchanged; run the prepared state to its first
decision."""


class BatchedSimulatorBase:
    """Environment copies of one simulation, advanced together.

    `buffers` is a tuple of arrays with one row per copy, among them copies (records with `next_first` and
    `arrival_rate`), jobs,
    mask, summary, reward, terms, over, finished (return, steps, replaced actions, then the terms), last_summary, and
    the weights of the terms.
    """

    def __init__(
        self, kernel: Callable[..., Any], states: Any, buffers: Any, log_arrays: Any, copies: int, threads: int | None
    ) -> None:
        """`kernel` is called with states, buffers, log_arrays, actions, and the first and last + 1 copy to step."""
        self.states, self.buffers, self.log_arrays, self.copies = states, buffers, log_arrays, copies
        self._kernel = kernel
        self._zeros: Observation = {}
        self._threads = min(threads or os.cpu_count() or 1, copies)
        self._pool = ThreadPoolExecutor(self._threads) if self._threads > 1 else None

    def step(self, actions: npt.NDArray[np.int64]) -> None:
        """One step of all copies, divided among the threads."""
        kernel = self._kernel
        fixed = (self.states, self.buffers, self.log_arrays, actions)
        if self._pool is None:
            kernel(*fixed, 0, self.copies)
            return
        bounds = [self.copies * i // self._threads for i in range(self._threads + 1)]
        futures = [self._pool.submit(kernel, *fixed, lo, hi) for lo, hi in pairwise(bounds[1:])]
        kernel(*fixed, 0, bounds[1])
        for future in futures:
            future.result()

    def begin(self, which: npt.NDArray[np.bool_]) -> None:
        """Begin the next episode of these copies."""
        self.step(np.where(which, BEGIN, NOTHING))

    def observed(self, copy: bool = True) -> Observation:
        """The current observation, as new arrays or as those that the next step overwrites."""
        buffers = self.buffers
        observation: Observation = {"jobs": buffers.jobs, "mask": buffers.mask, "summary": buffers.summary}
        return {name: array.copy() for name, array in observation.items()} if copy else observation

    def final_observation(self) -> Observation:
        """Last observation of episodes that ended in this step, where the next ones began at once: an empty queue."""
        if not self._zeros:  # built once: it is as large as an observation, and never changes
            self._zeros = {name: np.zeros_like(array) for name, array in self.observed(copy=False).items()}
            for array in self._zeros.values():
                array.flags.writeable = False
        return {**self._zeros, "summary": self.buffers.last_summary.copy()}

    def truncated(self) -> npt.NDArray[np.bool_]:
        """Which of the ended episodes were truncated."""
        return np.zeros(self.copies, np.bool_)

    def now_s(self) -> Floats:
        """(copies,) simulated time, seconds."""
        return np.array(self.states.clock["now"][:, 0])

    def episode_start_s(self) -> Floats:
        """(copies,) simulated time of the first submission of the episode, seconds."""
        return np.array(self.states.clock["first_submit_s"][:, 0])

    def start_count(self) -> Ints:
        """(copies,) how often a job has started in the episode so far."""
        return np.array(self.states.clock["segments"][:, 0])

    def starts(self, env: Ints, number: Ints) -> tuple[Ints, Floats]:
        """Job (numbered from 0 in the episode) and time, seconds, of the starts with these numbers in these copies."""
        job: Ints = np.asarray(self.states.segments)[env, number]
        return job, np.asarray(self.states.job_state["start_s"])[env, job]

    def submit_s(self, env: Ints, job: Ints) -> Floats:
        """Submission in simulated time, seconds, of jobs that have arrived."""
        times: Floats = np.asarray(self.states.jobs["submit_s"])[env, job]
        return times

    def slot_is_filled(self) -> npt.NDArray[np.bool_]:
        """(copies, slots) whether a job is shown there."""
        slots = self.buffers.slots.shape[1]
        return np.arange(slots) < np.asarray(self.buffers.copies["shown"])[:, None]

    def shown_jobs(self) -> tuple[Ints, Ints, Ints]:
        """Copy, slot and number in the episode of every job in the current observation."""
        env, slot = np.nonzero(self.slot_is_filled())
        return env, slot, self.buffers.slots[env, slot]

    def shown_rows(self) -> Ints:
        """(copies, slots) row of the log of every shown job; -1 in empty slots."""
        rows = self.buffers.slots + np.asarray(self.buffers.copies["first"])[:, None]
        return np.where(self.slot_is_filled(), rows, -1)

    def snapshot(self) -> dict[str, npt.NDArray[np.uint8]]:
        """Everything that the next steps depend on, as bytes."""
        return {
            name: np.frombuffer(array.tobytes(), np.uint8).copy() for name, array in self._changing_arrays().items()
        }

    def restore(self, saved: Mapping[str, npt.NDArray[Any]]) -> None:
        """Restore a snapshot; the simulator must be created with the same arguments."""
        arrays = self._changing_arrays()
        if set(arrays) != set(saved) or any(arrays[name].nbytes != saved[name].nbytes for name in arrays):
            raise InputError(
                "the snapshot is of an environment of another size; create the environment with the same arguments"
            )
        for name, array in arrays.items():
            if array.nbytes:
                array.reshape(-1).view(np.ndarray)[:] = np.frombuffer(saved[name].tobytes(), array.dtype)

    def _changing_arrays(self) -> dict[str, npt.NDArray[Any]]:
        arrays = {f"states.{name}": array for name, array in self.states._asdict().items()}
        return arrays | {f"buffers.{name}": array for name, array in self.buffers._asdict().items()}

    def close(self) -> None:
        """Stop the threads."""
        if self._pool is not None:
            self._pool.shutdown()
