"""k-anonymity: equivalence classes of jobs with equal quasi-identifiers, and the jobs in classes smaller than k.

If the log has users, the size of a class is its number of *users*: a hundred jobs of one user do not hide that user.
Suggested rules are coarsening steps that bring more jobs into classes of at least k users.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.errors import InputError, UnknownNameError
from kilowait.jobs import JobTable
from kilowait.jobs.columns import COLUMNS, LABEL_COLUMNS, ColumnArray
from kilowait.traces.anonymize.plan import (
    COLUMN_RULES,
    POWERS_OF_TWO,
    AnonymizationPlan,
    RoundingStep,
    parse_step,
    rounded,
)
from kilowait.units import format_duration

QUASI_IDENTIFIERS = ("nodes", "cores", "gpus", "estimate_s", "queue", "hour")
"""Default quasi-identifiers (what others may know about a job); those that the log has are used."""
SUBMISSION_TIME_PARTS: dict[str, tuple[float, float | None]] = {
    "hour": (3600.0, None),
    "day": (86400.0, None),
    "week": (7 * 86400.0, None),
    "hour_of_day": (3600.0, 24.0),
    "weekday": (86400.0, 7.0),
}
"""Parts of the submission time that may be known: unit in seconds, and period in units (None: not periodic)."""
SHOWN = 5
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")

Codes = npt.NDArray[np.int64]
Coded = tuple[Codes, int]
"""Values as codes from 0, and the number of distinct values."""


@dataclass(frozen=True)
class SmallClass:
    """A small equivalence class of jobs."""

    known: tuple[str, ...]
    """Common values as text, in the order of the quasi-identifiers."""
    jobs: int
    people: int
    """Number of users, or of jobs if the log has no users."""


@dataclass(frozen=True)
class AnonymityCheck:
    """Number of jobs in classes of fewer than `k` users (jobs, if the log has no users)."""

    k: int
    quasi: tuple[str, ...]
    has_users: bool
    jobs: int
    users: int
    """Users in the log; 0 if it has none."""
    classes: int
    classes_below: int
    jobs_below: int
    users_below: int
    """Users with at least one job in a class below k."""
    users_alone: int
    """Users with at least one job in a class without other users: its quasi-identifiers identify the user."""
    jobs_alone: int
    """Jobs in classes of one user, or of one job if the log has no users."""
    smallest: tuple[SmallClass, ...] = ()
    below: npt.NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, np.bool_), repr=False, compare=False)
    """Mask of the rows in classes below k."""

    def refuse(self) -> None:
        """Raise an InputError if any class is below k."""
        if self.jobs_below:
            raise InputError(
                f"{self.jobs_below:,} of {self.jobs:,} jobs are in {self.classes_below:,} classes of fewer than "
                f"{self.k} {self.counted_in}; coarsen or drop columns, suppress the rows with --drop-below-k, or omit "
                "--strict"
            )

    @property
    def counted_in(self) -> str:
        """Unit of class sizes: "users", or "jobs" if the log has no users."""
        return "users" if self.has_users else "jobs"


def choose_quasi_identifiers(plan: AnonymizationPlan, jobs: JobTable, names: Sequence[str] | None) -> tuple[str, ...]:
    """The quasi-identifiers: the given ones, validated, or the default ones that are published.

    >>> from kilowait.traces.anonymize.plan import make_plan
    >>> jobs = JobTable(job_id=[1], submit_s=[0], runtime_s=[9], nodes=[1])
    >>> choose_quasi_identifiers(make_plan(jobs), jobs, None)
    ('nodes', 'estimate_s', 'hour')
    """
    published = plan.published()
    if names is None:
        return tuple(name for name in QUASI_IDENTIFIERS if name in published or name in SUBMISSION_TIME_PARTS)
    for name in names:
        if name in SUBMISSION_TIME_PARTS:
            continue
        if name not in COLUMNS:
            raise UnknownNameError(
                "quasi-identifier", name, {*COLUMNS, *SUBMISSION_TIME_PARTS} - {"job_id", "user", "after_id"}
            )
        if name in ("job_id", "after_id", "user"):
            raise InputError(
                f"{name} cannot be a quasi-identifier: each user or job would be a class; give columns others may know"
            )
        if name not in jobs:
            raise InputError(f"the quasi-identifier {name} is not in this log; it has {', '.join(jobs.columns)}")
        if name not in published:
            raise InputError(
                f"the quasi-identifier {name} is dropped from the published log; leave it out of --quasi-identifiers"
            )
    if not names:
        raise InputError(f"no quasi-identifiers; give at least one, e.g. {','.join(QUASI_IDENTIFIERS)}")
    return tuple(dict.fromkeys(names))


def known_of(jobs: JobTable, name: str, submit_s: ColumnArray | None = None) -> ColumnArray:
    """Values of a quasi-identifier: a column, or a part of the submission time.

    >>> jobs = JobTable(job_id=[1, 2], submit_s=[10, 7300], runtime_s=[9, 9], nodes=[1, 1])
    >>> known_of(jobs, "hour").tolist()
    [0.0, 2.0]
    """
    if name not in SUBMISSION_TIME_PARTS:
        return jobs.column(name)
    unit, period = SUBMISSION_TIME_PARTS[name]
    moment = (jobs["submit_s"] if submit_s is None else submit_s) + float(jobs.meta.get("unix_start_s", 0))
    count = np.floor(moment / unit)
    if name == "weekday":
        count += 3.0  # 1 January 1970 was a Thursday
    return count if period is None else np.mod(count, period)


def check_k_anonymity(jobs: JobTable, users: ColumnArray, k: int, quasi: Sequence[str]) -> AnonymityCheck:
    """Check the k-anonymity of the jobs as published. `users` are the original users, -1 if unknown.

    >>> jobs = JobTable(job_id=[1, 2, 3], submit_s=[0, 5, 9], runtime_s=[9, 9, 9], nodes=[1, 1, 4])
    >>> check = check_k_anonymity(jobs, np.array([7, 8, 7]), 2, ["nodes"])
    >>> check.classes, check.jobs_below, check.smallest[0].known
    (2, 1, ('4',))
    """
    if k < 1:
        raise InputError(f"k is {k}; it must be at least 1, and 5 is usual")
    known = [known_of(jobs, name) for name in quasi]
    class_of, size, people = counted([coded(values) for values in known], users)
    has_users = bool((users >= 0).any())
    small = people < k
    below = small[class_of]
    alone = (people == 1)[class_of]
    first = np.zeros(len(size), np.int64)
    first[class_of[::-1]] = np.arange(len(class_of))[::-1]
    order = np.lexsort((first, size, people))[:SHOWN]
    return AnonymityCheck(
        k=k,
        quasi=tuple(quasi),
        has_users=has_users,
        jobs=len(jobs),
        users=_distinct(users),
        classes=len(size),
        classes_below=int(small.sum()),
        jobs_below=int(below.sum()),
        users_below=_distinct(users[below]),
        users_alone=_distinct(users[alone]),
        jobs_alone=int(alone.sum()),
        smallest=tuple(
            SmallClass(
                tuple(_format_value(jobs, name, values[first[c]]) for name, values in zip(quasi, known, strict=True)),
                int(size[c]),
                int(people[c]),
            )
            for c in order.tolist()
            if small[c]
        ),
        below=below,
    )


def coded(values: ColumnArray) -> Coded:
    """Values as codes from 0, and the number of distinct values.

    >>> coded(np.array([2.5, np.nan, 2.5]))[0].tolist()
    [0, 1, 0]
    """
    kinds, codes = np.unique(values, return_inverse=True)
    return codes.astype(np.int64), len(kinds)


def counted(known: Sequence[Coded], users: ColumnArray) -> tuple[Codes, Codes, Codes]:
    """Class of each job; jobs per class; users per class (jobs, if no user is known).

    All jobs of unknown users count as one user, because they may be of the same user.

    >>> [part.tolist() for part in counted([coded(np.array([4, 1, 4]))], np.array([7, 8, 7]))]
    [[1, 0, 1], [1, 2], [1, 1]]
    """
    class_of, classes = np.zeros(len(users), np.int64), 1
    for codes, kinds in known:
        if classes * kinds >= 2**62:  # avoid integer overflow: renumber the existing classes
            class_of, classes = coded(class_of)
        class_of, classes = class_of * kinds + codes, classes * kinds
    class_of = coded(class_of)[0]
    size = np.bincount(class_of)
    if not (users >= 0).any():
        return class_of, size, size
    user, names = coded(users)
    pairs = np.unique(class_of * names + user)
    return class_of, size, np.bincount(pairs // names, minlength=len(size))


def _distinct(users: ColumnArray) -> int:
    return len(np.unique(users[users >= 0]))


def _format_value(jobs: JobTable, name: str, value: Any) -> str:
    """A value of a quasi-identifier as text."""
    if name in SUBMISSION_TIME_PARTS:
        unit, period = SUBMISSION_TIME_PARTS[name]
        if name == "weekday":
            return _DAYS[int(value)]
        if period is not None:
            return f"{int(value)} h"
        if "unix_start_s" not in jobs.meta:
            return f"{name} {int(value)}"
        moment = datetime.fromtimestamp(float(value) * unit, UTC)
        return moment.strftime("%Y-%m-%d %H h" if name == "hour" else "%Y-%m-%d")
    if name in LABEL_COLUMNS:
        labels = jobs.labels.get(name)
        return "-" if value < 0 else str(int(value)) if labels is None else labels[int(value)]
    if name.endswith("_s"):
        return format_duration(float(value))
    return f"{float(value):,.10g}"


# -- suggested rules -------------------------------------------------------------------------------


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
        if column == "submit_s":
            parts = [SUBMISSION_TIME_PARTS[name][0] for name in quasi if name in SUBMISSION_TIME_PARTS]
            min_size = max([min_size, *parts])
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
