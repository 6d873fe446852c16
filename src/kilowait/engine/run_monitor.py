"""Progress of a simulation while it runs in compiled code: the number of jobs that have ended.

Compiled code does not call Python. A thread reads the states of the jobs instead, which changes nothing in the run.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from time import monotonic

Report = Callable[[int, int, float], None]
"""Called with the number of jobs that have ended, the number of jobs of the run, and the seconds since it began."""

_REPORT: ContextVar[tuple[Report, float] | None] = ContextVar("_REPORT", default=None)


@contextmanager
def monitored_runs(report: Report, interval_s: float = 0.5) -> Iterator[None]:
    """Call `report` about every `interval_s` seconds during the simulations of this context, from another thread.

    >>> import kilowait as kw
    >>> seen = []
    >>> with monitored_runs(lambda ended, jobs, seconds: seen.append((ended, jobs))):
    ...     log = kw.simulate(kw.lublin(20, nodes=8, seed=1), kw.Cluster.from_nodes(8))
    >>> seen[-1]
    (20, 20)
    """
    token = _REPORT.set((report, interval_s))
    try:
        yield
    finally:
        _REPORT.reset(token)


@contextmanager
def reported_run(ended: Callable[[], int], jobs: int) -> Iterator[None]:
    """Report the progress of one run, if it is monitored: `ended` counts the jobs that have ended."""
    monitor = _REPORT.get()
    if monitor is None:
        yield
        return
    report, interval_s = monitor
    over = threading.Event()
    begin_s = monotonic()

    def poll() -> None:
        while not over.wait(interval_s):
            report(ended(), jobs, monotonic() - begin_s)

    thread = threading.Thread(target=poll, name="progress of a simulation", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    report(ended(), jobs, monotonic() - begin_s)
