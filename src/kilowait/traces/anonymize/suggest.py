"""Suggested generalizations: coarsening steps that bring more jobs into classes of at least k users."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from kilowait.jobs import JobTable
from kilowait.jobs.columns import LABEL_COLUMNS, ColumnArray
from kilowait.traces.anonymize.column_rules import COLUMN_RULES
from kilowait.traces.anonymize.generalize import POWERS_OF_TWO, RoundingStep, parse_step, rounded
from kilowait.traces.anonymize.k_anonymity import SUBMISSION_TIME_PARTS, AnonymityCheck, Coded, coded, counted, known_of
from kilowait.traces.anonymize.plan import AnonymizationPlan

__all__ = ["SuggestedRule", "suggest_rules"]

_SPANS = ("10m", "1h", "6h", "1d", "7d")
_SIZES = (POWERS_OF_TWO,)


@dataclass(frozen=True)
class SuggestedRule:
    """A suggested coarsening step, and the jobs and users still below k after it and the previous suggestions."""

    column: str
    step: str | None
    """Step for ``--coarsen``; None: drop the column."""
    jobs_below: int
    users_below: int


def suggest_rules(
    jobs: JobTable, users: ColumnArray, check: AnonymityCheck, plan: AnonymizationPlan
) -> tuple[SuggestedRule, ...]:
    """Greedy search of coarsening steps: each time the one that leaves the fewest jobs below k, until none are.

    Ties are broken in favour of fewer classes.

    >>> from kilowait.traces.anonymize.k_anonymity import check_k_anonymity
    >>> from kilowait.traces.anonymize.plan import make_plan
    >>> jobs = JobTable(job_id=[1, 2], submit_s=[0, 5], runtime_s=[9, 9], nodes=[7, 8])
    >>> users = np.array([1, 2])
    >>> suggest_rules(jobs, users, check_k_anonymity(jobs, users, 2, ["nodes"]), make_plan(jobs))
    (SuggestedRule(column='nodes', step='pow2', jobs_below=0, users_below=0),)
    """
    known = {name: coded(known_of(jobs, name)) for name in check.quasi}
    steps_of = {column: list(_coarser_steps(column, plan, check.quasi)) for column in map(_column_of, check.quasi)}
    below, suggestions = check.jobs_below, list[SuggestedRule]()
    while below and any(steps_of.values()):
        candidates = []
        for column, steps in steps_of.items():
            if steps:
                changed = _changed(jobs, known, column, steps[0])
                candidates.append((*_below(list(changed.values()), users, check.k), column, changed))
        below, _, people, column, known = min(candidates, key=lambda candidate: candidate[:2])
        step = steps_of[column].pop(0)
        suggestions.append(SuggestedRule(column, None if step is None else step.text, below, people))
    return _trim(suggestions, check.jobs_below)


def _column_of(name: str) -> str:
    return "submit_s" if name in SUBMISSION_TIME_PARTS else name


def _trim(suggestions: list[SuggestedRule], before: int) -> tuple[SuggestedRule, ...]:
    """Remove trailing suggestions without effect."""
    while suggestions and suggestions[-1].jobs_below == (
        suggestions[-2].jobs_below if len(suggestions) > 1 else before
    ):
        suggestions.pop()
    return tuple(suggestions)


def _coarser_steps(column: str, plan: AnonymizationPlan, quasi: Sequence[str]) -> Iterator[RoundingStep | None]:
    """Increasingly coarse steps of a column, coarser than its current step; None: drop the column."""
    if COLUMN_RULES[column].rounding is not None:
        now = plan.steps.get(column)
        min_size = 0.0 if now is None or now.size is None else now.size
        min_size = max(
            [
                min_size,
                *(
                    SUBMISSION_TIME_PARTS[name][0]
                    for name in quasi
                    if name in SUBMISSION_TIME_PARTS and column == "submit_s"
                ),
            ]
        )
        for text in _SPANS if column.endswith("_s") else _SIZES:
            step = parse_step(column, text)
            if now is None if step.size is None else step.size > min_size:
                yield step
    if column in LABEL_COLUMNS:
        yield None


def _changed(jobs: JobTable, known: dict[str, Coded], column: str, step: RoundingStep | None) -> dict[str, Coded]:
    """Codes of the quasi-identifiers after the column is coarsened or dropped."""
    if step is None:
        return {name: codes for name, codes in known.items() if name != column}
    rounding = COLUMN_RULES[column].rounding
    assert rounding is not None
    values = rounded(jobs[column], rounding, step)
    return {
        name: codes
        if _column_of(name) != column
        else coded(known_of(jobs, name, values) if name in SUBMISSION_TIME_PARTS else values)
        for name, codes in known.items()
    }


def _below(known: Sequence[Coded], users: ColumnArray, k: int) -> tuple[int, int, int]:
    """Jobs in classes below k; classes; users in classes below k."""
    class_of, size, people = counted(known, users)
    below = (people < k)[class_of]
    return int(below.sum()), len(size), len(np.unique(users[below & (users >= 0)]))
