"""Run tasks in parallel processes; a failed task does not stop the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from typing import Any

__all__ = ["run_parallel"]


def run_parallel(
    task: Callable[..., str], calls: Sequence[tuple[Any, ...]], processes: int, report_progress: Callable[[str], None]
) -> None:
    """Call `task` with each set of arguments and report every result or failure as it completes."""
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        pending = {pool.submit(task, *call): call for call in calls}
        for future in as_completed(pending):
            error = future.exception()
            report_progress(future.result() if error is None else f"{pending[future]} failed: {error!r}")
