"""What would help: coarsenings that put more jobs into classes of k users, tried one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from kilowait.jobs import JobTable
from kilowait.jobs.columns import LABELLED, REQUIRED, ColumnArray
from kilowait.traces.privacy.classes import MOMENTS, Check, counted, known_of
from kilowait.traces.privacy.coarse import POWERS, Step, parse_step, rounded
from kilowait.traces.privacy.plan import Plan
from kilowait.traces.privacy.rules import RULES

__all__ = ["Remedy", "find_remedies"]

_SPANS = ("10m", "1h", "6h", "1d", "7d")
_SIZES = (POWERS,)


@dataclass(frozen=True)
class Remedy:
    """One more thing to do, and what is left below k after it and all before it."""

    column: str
    step: str | None
    """For ``--coarsen``; None: drop the column."""
    jobs_below: int
    users_below: int


def find_remedies(jobs: JobTable, users: ColumnArray, check: Check, plan: Plan) -> tuple[Remedy, ...]:
    """Coarsenings of the quasi-identifiers, each time the one that leaves the fewest jobs below k, until none are.

    >>> from kilowait.traces.privacy.classes import check_classes
    >>> from kilowait.traces.privacy.plan import make_plan
    >>> jobs = JobTable(job_id=[1, 2], submit_s=[0, 5], runtime_s=[9, 9], nodes=[7, 8])
    >>> users = np.array([1, 2])
    >>> find_remedies(jobs, users, check_classes(jobs, users, 2, ["nodes"]), make_plan(jobs))
    (Remedy(column='nodes', step='pow2', jobs_below=0, users_below=0),)
    """
    known = {name: known_of(jobs, name) for name in check.quasi}
    ladders = {name: list(_ladder(name, plan)) for name in check.quasi}
    below, found = check.jobs_below, list[Remedy]()
    while below and any(ladders.values()):
        tried = []
        for name, ladder in ladders.items():
            if ladder:
                changed = dict(known)
                if ladder[0] is None:
                    del changed[name]
                else:
                    changed[name] = _coarser(jobs, name, ladder[0])
                tried.append((*_below(list(changed.values()), users, check.k), name, changed))
        below, people, name, known = min(tried, key=lambda one: one[0])
        step = ladders[name].pop(0)
        column = "submit_s" if name in MOMENTS else name
        found.append(Remedy(column, None if step is None else step.text, below, people))
    return _without_idle(found, check.jobs_below)


def _without_idle(found: list[Remedy], before: int) -> tuple[Remedy, ...]:
    """Without what came last and changed nothing."""
    while found and found[-1].jobs_below == (found[-2].jobs_below if len(found) > 1 else before):
        found.pop()
    return tuple(found)


def _ladder(name: str, plan: Plan) -> Iterator[Step | None]:
    """Ever coarser steps of a quasi-identifier, coarser than the one it has; None: leave the column out."""
    column = "submit_s" if name in MOMENTS else name
    if RULES[column].rounding is not None:
        steps = [parse_step(column, text) for text in (_SPANS if column.endswith("_s") else _SIZES)]
        now = plan.steps.get(column)
        least = 0.0 if now is None or now.size is None else now.size
        if name in MOMENTS:
            least = max(least, MOMENTS[name][0])
        for step in steps:
            if (now is None) if step.size is None else (step.size > least):
                yield step
    if name in LABELLED and column not in REQUIRED:
        yield None


def _coarser(jobs: JobTable, name: str, step: Step) -> ColumnArray:
    column = "submit_s" if name in MOMENTS else name
    rounding = RULES[column].rounding
    assert rounding is not None
    values = rounded(jobs[column], rounding, step)
    return known_of(jobs, name, values) if name in MOMENTS else values


def _below(known: list[ColumnArray], users: ColumnArray, k: int) -> tuple[int, int]:
    """Jobs and users in classes below k."""
    class_of, _, people = counted(known, users)
    below = (people < k)[class_of]
    return int(below.sum()), len(np.unique(users[below & (users >= 0)]))
