"""Privacy of a generated workload: does it give away the jobs it was learned from?

Measured against jobs of the same machine that the generator has *not* seen (held out): whatever is as near to those
as to the jobs it has seen, it has not copied. Rows are compared by size, request, run time, queue and status;
users have other numbers. These are measures, not promises: nothing here is differentially private.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.spatial import KDTree

from kilowait.errors import InputError, UnknownNameError
from kilowait.jobs import JobTable
from kilowait.seeding import stream
from kilowait.synth.rows import check_jobs, job_before, job_rows, same_numbers, some_rows

__all__ = ["Anonymity", "Leaks", "anonymity", "leaks"]

Floats = npt.NDArray[np.float64]

LEAST_JOBS = 50
MOST_ROWS = 20_000
COMPARED = ("nodes", "gpus", "estimate_s", "runtime_s", "queue", "status")
"""Not the hour: a job that was copied to another time is a copy."""
KNOWN = ("nodes", "gpus", "estimate_s", "queue", "hour")
"""What an outsider may know of a job, unless said otherwise."""


@dataclass(frozen=True)
class Leaks:
    """What a generated workload gives away of the jobs it was learned from."""

    nearer_to_seen: float
    """Share of generated jobs that are nearer to a seen job than to any held-out one; 0.5: no nearer."""
    closest_seen: float
    """Median distance of a generated job to the closest seen one, in standard deviations of the columns."""
    closest_held_out: float
    """The same to held-out jobs."""
    copies: float
    """Share of generated jobs that equal a seen one in every column but the time."""
    copies_of_held_out: float
    """The same of held-out jobs: how many would be equal by chance, as small jobs are."""
    copied_pairs: float
    """Share of jobs that, with their user's job before, equal two seen ones: a copied run, not chance."""
    copied_pairs_of_held_out: float
    membership_auc: float
    """How well the distance to the closest generated job tells seen from held-out jobs; 0.5: not at all."""
    membership_advantage: float
    """The largest difference between seen jobs found and held-out ones taken for seen; 0: none, 1: all are found."""


def leaks(made: JobTable, seen: JobTable, held_out: JobTable, *, seed: int = 0) -> Leaks:
    """Compare generated jobs with those they were learned from and with others of the same kind.

    Args:
        made: generated.
        seen: what the generator was fitted to.
        held_out: of the same machine and time, not seen; random weeks of the log, say.
        seed: for the choice of rows where there are many.
    """
    tables = [table.sorted() for table in (made, seen, held_out)]
    check_jobs(tables, LEAST_JOBS)
    rng = stream(seed, "synth.privacy")
    # As many seen as held-out jobs: among more jobs there is a closer one.
    count = min(len(seen), len(held_out), MOST_ROWS)
    rows = [
        some_rows(len(table), most, rng)
        for table, most in zip(tables, (MOST_ROWS, count, count), strict=True)
    ]
    points = [space[chosen] for space, chosen in zip(_space(*tables), rows, strict=True)]
    generated, known, unknown = points
    to_seen, to_other = KDTree(known).query(generated)[0], KDTree(unknown).query(generated)[0]
    tree = KDTree(generated)
    of_seen, of_other = tree.query(known)[0], tree.query(unknown)[0]
    copies, pairs = (_copies(*tables, before=before) for before in (False, True))
    return Leaks(
        nearer_to_seen=float((to_seen < to_other).mean() + 0.5 * (to_seen == to_other).mean()),
        closest_seen=float(np.median(to_seen)),
        closest_held_out=float(np.median(to_other)),
        copies=copies[0],
        copies_of_held_out=copies[1],
        copied_pairs=pairs[0],
        copied_pairs_of_held_out=pairs[1],
        membership_auc=_auc(of_seen, of_other),
        membership_advantage=_advantage(of_seen, of_other),
    )


def _space(*tables: JobTable) -> list[Floats]:
    """Jobs as points: logarithms in standard deviations, kinds one apart."""
    every = [job_rows(table) for table in tables]
    names = [name for name in COMPARED if all(name in rows for rows in every)]
    points: list[list[Floats]] = [[] for _ in tables]
    for name in names:
        together = same_numbers([rows[name] for rows in every])
        if name in ("queue", "status"):
            for kind in np.unique(np.concatenate(together)):
                for place, values in enumerate(together):
                    points[place].append((values == kind) / np.sqrt(2))
        else:
            scale = float(np.log1p(together[1]).std()) or 1.0
            for place, values in enumerate(together):
                points[place].append(np.log1p(values) / scale)
    return [np.column_stack(columns) for columns in points]


def _copies(made: JobTable, seen: JobTable, held_out: JobTable, *, before: bool) -> tuple[float, float]:
    """Share of generated and of held-out jobs that equal a seen one; with `before`, together with the job before."""
    rows = _numbers(made, seen, held_out)
    if before:
        pairs = []
        for table, values in zip((made, seen, held_out), rows, strict=True):
            last = job_before(table)
            pairs.append(np.column_stack([values[last >= 0], values[last[last >= 0]]]))
        rows = pairs
    known = {row.tobytes() for row in rows[1]}
    shares = [
        float(np.mean([row.tobytes() in known for row in values])) if len(values) else 0.0
        for values in (rows[0], rows[2])
    ]
    return shares[0], shares[1]


def _numbers(*tables: JobTable) -> list[Floats]:
    every = [job_rows(table) for table in tables]
    names = [name for name in COMPARED if all(name in rows for rows in every)]
    columns = [same_numbers([rows[name] for rows in every]) for name in names]
    return [np.column_stack([column[place] for column in columns]) for place in range(len(tables))]


def _auc(near: Floats, far: Floats) -> float:
    """Probability that one of `near` is smaller than one of `far`; ties count half."""
    ordered = np.sort(far)
    above = len(far) - np.searchsorted(ordered, near, side="right")
    level = np.searchsorted(ordered, near, side="right") - np.searchsorted(ordered, near, side="left")
    return float((above + 0.5 * level).sum() / (len(near) * len(far)))


def _advantage(near: Floats, far: Floats) -> float:
    limits = np.unique(np.concatenate([near, far]))
    found = np.searchsorted(np.sort(near), limits, side="right") / len(near)
    wrong = np.searchsorted(np.sort(far), limits, side="right") / len(far)
    return float(max(0.0, (found - wrong).max()))


# -- k-anonymity -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Anonymity:
    """How many users share what an outsider may know of a job."""

    known: tuple[str, ...]
    k: int
    jobs_below: float
    """Share of jobs in classes of fewer than k users."""
    smallest: int
    """Users of the smallest class."""


def anonymity(jobs: JobTable, *, known: Sequence[str] | None = None, k: int = 5) -> Anonymity:
    """k-anonymity of a workload: jobs alike in `known` form a class, and classes count users.

    >>> jobs = JobTable(
    ...     job_id=[1, 2, 3], submit_s=[0, 1, 2], runtime_s=[9, 9, 9], nodes=[4, 4, 8], user=[1, 2, 1]
    ... )
    >>> anonymity(jobs, known=["nodes"], k=2)
    Anonymity(known=('nodes',), k=2, jobs_below=0.3333333333333333, smallest=1)
    """
    if k < 1:
        raise InputError(f"k is {k}; it must be at least 1")
    rows = job_rows(jobs.sorted())
    names = tuple(name for name in KNOWN if name in rows) if known is None else tuple(known)
    for name in names:
        if name not in rows:
            raise UnknownNameError("column that may be known", name, rows)
    numbers = np.column_stack([same_numbers([rows[name]])[0] for name in names])
    classes = np.unique(numbers, axis=0, return_inverse=True)[1].ravel()
    people = np.unique(np.stack([classes, jobs.sorted().column("user")]), axis=1)[0]
    users = np.bincount(people)
    return Anonymity(names, k, float((users[classes] < k).mean()), int(users.min()))
