"""What would help: coarsenings that put more jobs into classes of k users, tried one after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from kilowait.jobs import JobTable
from kilowait.jobs.columns import LABELLED, ColumnArray
from kilowait.traces.anonymize.column_rules import RULES
from kilowait.traces.anonymize.generalize import (
    POWERS,
    RoundingStep,
    parse_step,
    rounded,
)
from kilowait.traces.anonymize.k_anonymity import (
    MOMENTS,
    AnonymityCheck,
    Coded,
    coded,
    counted,
    known_of,
)
from kilowait.traces.anonymize.plan import AnonymizationPlan

__all__ = ["SuggestedRule", "find_remedies"]

_SPANS = ("10m", "1h", "6h", "1d", "7d")
_SIZES = (POWERS,)


@dataclass(frozen=True)
class SuggestedRule:
    """One more thing to do, and what is left below k after it and all before it."""

    column: str
    step: str | None
    """For ``--coarsen``; None: drop the column."""
    jobs_below: int
    users_below: int


def find_remedies(
    jobs: JobTable, users: ColumnArray, check: AnonymityCheck, plan: AnonymizationPlan
) -> tuple[SuggestedRule, ...]:
    """Coarsenings of the quasi-identifiers, each time the one that leaves the fewest jobs below k, until none are.

    Of two that leave as many the one with fewer classes is taken: it goes further.

    >>> from kilowait.traces.anonymize.k_anonymity import check_classes
    >>> from kilowait.traces.anonymize.plan import make_plan
    >>> jobs = JobTable(job_id=[1, 2], submit_s=[0, 5], runtime_s=[9, 9], nodes=[7, 8])
    >>> users = np.array([1, 2])
    >>> find_remedies(jobs, users, check_classes(jobs, users, 2, ["nodes"]), make_plan(jobs))
    (SuggestedRule(column='nodes', step='pow2', jobs_below=0, users_below=0),)
    """
    known = {name: coded(known_of(jobs, name)) for name in check.quasi}
    ladders = {column: list(_ladder(column, plan, check.quasi)) for column in map(_column_of, check.quasi)}
    below, found = check.jobs_below, list[SuggestedRule]()
    while below and any(ladders.values()):
        tried = []
        for column, ladder in ladders.items():
            if ladder:
                changed = _changed(jobs, known, column, ladder[0])
                tried.append((*_below(list(changed.values()), users, check.k), column, changed))
        below, _, people, column, known = min(tried, key=lambda one: one[:2])
        step = ladders[column].pop(0)
        found.append(SuggestedRule(column, None if step is None else step.text, below, people))
    return _without_idle(found, check.jobs_below)


def _column_of(name: str) -> str:
    return "submit_s" if name in MOMENTS else name


def _without_idle(found: list[SuggestedRule], before: int) -> tuple[SuggestedRule, ...]:
    """Without what came last and changed nothing."""
    while found and found[-1].jobs_below == (found[-2].jobs_below if len(found) > 1 else before):
        found.pop()
    return tuple(found)


def _ladder(column: str, plan: AnonymizationPlan, quasi: Sequence[str]) -> Iterator[RoundingStep | None]:
    """Ever coarser steps of a column, coarser than what is known of it; None: leave the column out."""
    if RULES[column].rounding is not None:
        now = plan.steps.get(column)
        least = 0.0 if now is None or now.size is None else now.size
        least = max(
            [least, *(MOMENTS[name][0] for name in quasi if name in MOMENTS and column == "submit_s")]
        )
        for text in _SPANS if column.endswith("_s") else _SIZES:
            step = parse_step(column, text)
            if now is None if step.size is None else step.size > least:
                yield step
    if column in LABELLED:
        yield None


def _changed(
    jobs: JobTable, known: dict[str, Coded], column: str, step: RoundingStep | None
) -> dict[str, Coded]:
    """What is known of the jobs once the column is coarser, or gone."""
    if step is None:
        return {name: codes for name, codes in known.items() if name != column}
    rounding = RULES[column].rounding
    assert rounding is not None
    values = rounded(jobs[column], rounding, step)
    return {
        name: codes
        if _column_of(name) != column
        else coded(known_of(jobs, name, values) if name in MOMENTS else values)
        for name, codes in known.items()
    }


def _below(known: Sequence[Coded], users: ColumnArray, k: int) -> tuple[int, int, int]:
    """Jobs in classes below k; classes; users in classes below k."""
    class_of, size, people = counted(known, users)
    below = (people < k)[class_of]
    return int(below.sum()), len(size), len(np.unique(users[below & (users >= 0)]))
