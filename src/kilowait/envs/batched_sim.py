"""Batched simulator: many simulations side by side, advanced by one compiled call a step; actions and snapshots."""

from __future__ import annotations

import ast
import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.envs.kernels.state_stack import DISABLED, StepBuffers
from kilowait.envs.kernels.step import BEGIN, NOTHING, KernelSet
from kilowait.envs.observation_spec import ObservationSpec
from kilowait.errors import InputError

Observation = dict[str, npt.NDArray[Any]]
Decide = Callable[[Observation], npt.NDArray[np.int64]]
"""From an observation with one row per copy to one action per copy."""
Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

MAX_RANDOM_STATE_BYTES = 1_000
"""Maximum size of the state of a random generator, bytes."""


@dataclass(frozen=True)
class CopySettings:
    """Number and episodes of the environment copies of a simulator."""

    copies: int
    episode_jobs: int
    """Jobs in an episode."""
    autoreset: int = DISABLED
    """NEXT_STEP, SAME_STEP or DISABLED."""
    threads: int | None = None
    """Threads of the engine; None: one per core."""


class BatchedSimulator:
    """Environment copies of one simulation, advanced together.

    The arrays of `states` and `buffers` have one row per copy.
    """

    def __init__(
        self, kernels: KernelSet, states: Any, buffers: StepBuffers, log_arrays: Any, threads: int | None
    ) -> None:
        """Compile the step of these kernels; `log_arrays` have what episodes are copied from."""
        self.states, self.buffers, self.log_arrays, self.copies = states, buffers, log_arrays, len(buffers.over)
        self._kernel = kernels.compiled_step(states, buffers, log_arrays)
        self._zeros: Observation = {}
        self._threads = min(threads or os.cpu_count() or 1, self.copies)
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
        if buffers.edges.size:
            observation["edges"] = buffers.edges
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
        cut: npt.NDArray[np.bool_] = self.buffers.cut.copy()
        return cut

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
        buffers = self.buffers._asdict()
        own = buffers.pop("own")
        buffers |= own._asdict() if own else {}
        arrays = {f"states.{name}": array for name, array in self.states._asdict().items()}
        return arrays | {f"buffers.{name}": array for name, array in buffers.items()}

    def close(self) -> None:
        """Stop the threads."""
        if self._pool is not None:
            self._pool.shutdown()


def step_buffers(
    env_settings: npt.NDArray[Any], copy_record: np.dtype[Any], spec: ObservationSpec, weights: Floats, copies: int
) -> StepBuffers:
    """Buffers of `copies` copies, whose jobs arrive at the rate of the log."""
    terms, edges = len(weights), spec.slots if spec.graph else 0
    records = np.zeros(copies, copy_record).view(np.recarray)
    records["arrival_rate"] = 1.0
    return StepBuffers(
        env_settings=env_settings,
        weights=weights,
        copies=records,
        jobs=np.zeros((copies, spec.slots, len(spec.features)), np.float32),
        mask=np.zeros((copies, spec.actions), np.int8),
        summary=np.zeros((copies, len(spec.summary)), np.float32),
        slots=np.zeros((copies, spec.slots), np.int64),
        edges=np.zeros((copies, edges, edges), np.uint8),
        reward=np.zeros(copies),
        terms=np.zeros((copies, terms)),
        settled=np.zeros((copies, terms)),
        accrued=np.zeros((copies, terms)),
        over=np.zeros(copies, np.bool_),
        last_summary=np.zeros((copies, len(spec.summary)), np.float32),
        cut=np.zeros(copies, np.bool_),
        finished=np.zeros((copies, 3 + terms)),
    )


def record(dtype: np.dtype[Any], **values: Any) -> npt.NDArray[Any]:
    """One record of this type; fields that are not given are 0."""
    array = np.zeros(1, dtype).view(np.recarray)
    for name, value in values.items():
        array[name] = value
    return array


def checked_actions(actions: Any, copies: int, choices: int) -> npt.NDArray[np.int64]:
    """The actions as an array, one per environment copy; raises an error unless they are integers in range.

    Floats are refused even if they are whole, as by Gymnasium's `Discrete`: rounding would choose another action than
    the caller meant, and bools are masks rather than actions.

    >>> checked_actions([np.int32(3), 0], copies=2, choices=4).tolist()
    [3, 0]
    """
    try:
        array = np.asarray(actions)
    except ValueError:  # a ragged list
        array = np.array(None)
    kinds = {type(value) for value in actions} if isinstance(actions, (list, tuple)) else set()
    if array.dtype.kind not in "iu" or kinds & {bool, np.bool_}:  # numpy reads [True, 2] as integers
        raise InputError(f"actions {actions!r} are not integers; {_remedy(copies, choices)}")
    if array.shape != (copies,) or int(array.min()) < 0 or int(array.max()) >= choices:
        raise InputError(f"actions {actions!r}; {_remedy(copies, choices)}")
    return np.ascontiguousarray(array, np.int64)


def _remedy(copies: int, choices: int) -> str:
    return f"give whole numbers from 0 to {choices - 1}, of an integer type, one per environment copy ({copies})"


def random_state_bytes(random: np.random.Generator) -> npt.NDArray[np.uint8]:
    """The state of a generator as bytes."""
    return np.frombuffer(repr(random.bit_generator.state).encode(), np.uint8).copy()


def restore_random_state(random: np.random.Generator, state: npt.NDArray[np.uint8]) -> None:
    """Restore the state of a generator; InputError if the bytes contain none.

    >>> random, other = np.random.default_rng(1), np.random.default_rng(2)
    >>> restore_random_state(other, random_state_bytes(random))
    >>> bool(random.random() == other.random())
    True
    """
    text = state.tobytes()[: MAX_RANDOM_STATE_BYTES + 1]
    try:
        # Brackets are counted, as the parser needs stack for each of them.
        if (
            len(text) > MAX_RANDOM_STATE_BYTES
            or text.count(b"{") > 2
            or text.count(b"(") + text.count(b"[") + text.count(b"-") > 0
        ):
            raise ValueError
        random.bit_generator.state = ast.literal_eval(text.decode("ascii"))
    except (ValueError, SyntaxError, TypeError, KeyError, OverflowError, RecursionError, MemoryError):
        raise InputError("the snapshot has no valid state of the random generator; train again") from None
