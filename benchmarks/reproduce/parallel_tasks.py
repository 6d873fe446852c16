"""Run tasks in parallel processes; a failed task does not stop the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from typing import Any

__all__ = ["side_by_side"]


def side_by_side(
    work: Callable[..., str], calls: Sequence[tuple[Any, ...]], processes: int, say: Callable[[str], None]
) -> None:
    """Call `work` with each set of arguments and report every result or failure as it completes."""
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        waiting = {pool.submit(work, *call): call for call in calls}
        for done in as_completed(waiting):
            problem = done.exception()
            say(done.result() if problem is None else f"{waiting[done]} failed: {problem!r}")
