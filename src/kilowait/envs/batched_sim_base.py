"""Copies of a run side by side, whatever clock they are of: all of them taken a step further in one call."""

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

NEXT_STEP, SAME_STEP, DISABLED = 0, 1, 2
"""When the next episode begins, as Gymnasium defines it."""
BEGIN, NOTHING, START_PREPARED = -1, -2, -3
"""Instead of an action: begin the next episode; leave the copy as it is; set out from the state as it was prepared."""


class BatchedSimulatorBase:
    """What a vector env asks of a board.

    `scene` is a tuple of arrays, one row a copy, among them copies (records with `next_first` and `pace`), jobs,
    mask, summary, reward, terms, over, finished (return, steps, replaced actions, then the terms), last_summary, and
    weights of the terms.
    """

    def __init__(
        self,
        kernel: Callable[..., Any],
        stack: Any,
        scene: Any,
        source: Any,
        copies: int,
        threads: int | None,
    ) -> None:
        """`kernel` is called with stack, scene, source, actions, and the copies from which and up to which to step."""
        self.stack, self.scene, self.source, self.copies = stack, scene, source, copies
        self._kernel = kernel
        self._nothing: Observation = {}
        self._threads = min(threads or os.cpu_count() or 1, copies)
        self._pool = ThreadPoolExecutor(self._threads) if self._threads > 1 else None

    def step(self, choice: npt.NDArray[np.int64]) -> None:
        """One step of all copies, a part of them on each thread."""
        kernel = self._kernel
        fixed = (self.stack, self.scene, self.source, choice)
        if self._pool is None:
            kernel(*fixed, 0, self.copies)
            return
        cuts = [self.copies * i // self._threads for i in range(self._threads + 1)]
        parts = [self._pool.submit(kernel, *fixed, lo, hi) for lo, hi in pairwise(cuts[1:])]
        kernel(*fixed, 0, cuts[1])
        for part in parts:
            part.result()

    def begin(self, which: npt.NDArray[np.bool_]) -> None:
        """Begin the next episode of these copies."""
        self.step(np.where(which, BEGIN, NOTHING))

    def observed(self, copy: bool = True) -> Observation:
        """What is shown now, as new arrays or as those that the next step overwrites."""
        a = self.scene
        shown: Observation = {"jobs": a.jobs, "mask": a.mask, "summary": a.summary}
        return {name: array.copy() for name, array in shown.items()} if copy else shown

    def final_observation(self) -> Observation:
        """What was seen last of episodes that ended in this step and began anew at once: nobody waits any more."""
        if not self._nothing:  # made once: as large as an observation, and always the same
            self._nothing = {name: np.zeros_like(array) for name, array in self.observed(copy=False).items()}
            for array in self._nothing.values():
                array.flags.writeable = False
        return {**self._nothing, "summary": self.scene.last_summary.copy()}

    def truncated(self) -> npt.NDArray[np.bool_]:
        """Which of the episodes that are over were cut off before their end."""
        return np.zeros(self.copies, np.bool_)

    def snapshot(self) -> dict[str, npt.NDArray[np.uint8]]:
        """Everything that the next steps depend on, as bytes."""
        return {
            name: np.frombuffer(array.tobytes(), np.uint8).copy() for name, array in self._moving().items()
        }

    def restore(self, kept: Mapping[str, npt.NDArray[Any]]) -> None:
        """Go on exactly where `snapshot` was taken; the board must be made with the same arguments."""
        own = self._moving()
        if set(own) != set(kept) or any(own[name].nbytes != kept[name].nbytes for name in own):
            raise InputError("the snapshot is of an env of another size; make the env as it was made then")
        for name, array in own.items():
            if array.nbytes:
                array.reshape(-1).view(np.ndarray)[:] = np.frombuffer(kept[name].tobytes(), array.dtype)

    def _moving(self) -> dict[str, npt.NDArray[Any]]:
        moving = {f"stack.{name}": array for name, array in self.stack._asdict().items()}
        return moving | {f"scene.{name}": array for name, array in self.scene._asdict().items()}

    def close(self) -> None:
        """End the threads."""
        if self._pool is not None:
            self._pool.shutdown()
