"""Distances to the closest record (DCR): generated jobs to seen and to held-out real jobs.

Rows are compared by size, request, run time, queue and status, on logarithmic scales; users have other numbers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.spatial import KDTree

from kilowait.jobs import JobTable
from kilowait.rng import stream
from kilowait.synth.job_features import (
    check_jobs,
    job_rows,
    same_numbers,
    some_rows,
)

__all__ = [
    "COMPARED",
    "RecordDistances",
    "Roc",
    "advantage",
    "record_distances",
    "compared_numbers",
    "nearer_auc",
    "roc",
]

Floats = npt.NDArray[np.float64]

LEAST_JOBS = 50
MOST_ROWS = 20_000
COMPARED = ("nodes", "gpus", "estimate_s", "runtime_s", "queue", "status")
"""Compared columns. Not the hour: a job copied to another time is a copy."""
POINTS = 160
"""Number of points of a stored curve."""


@dataclass(frozen=True, eq=False)
class RecordDistances:
    """Distances to the closest record, in standard deviations of the seen jobs' logarithms; 0 is a copy."""

    made_to_seen: Floats
    """From every generated job to the closest seen one."""
    made_to_held_out: Floats
    held_out_to_seen: Floats
    """From held-out jobs to the closest generated one: the reference for uncopied jobs."""
    seen_to_made: Floats
    """From every seen job to the closest generated one."""
    held_out_to_made: Floats

    def shares(self) -> dict[str, tuple[float, ...]]:
        """Share of the jobs at most ``at`` from the closest record, for the first three distances."""
        sides = {
            name: np.sort(getattr(self, name))
            for name in ("made_to_seen", "made_to_held_out", "held_out_to_seen")
        }
        at = np.unique(np.quantile(np.concatenate([*sides.values()]), np.linspace(0, 1, POINTS)))
        curves = {
            name: np.searchsorted(values, at, side="right") / len(values) for name, values in sides.items()
        }
        return {name: tuple(values.tolist()) for name, values in {"at": at, **curves}.items()}


def record_distances(
    synthetic: JobTable, seen: JobTable, held_out: JobTable, *, seed: int = 0
) -> RecordDistances:
    """Distances between generated, seen and held-out jobs; as many seen as held-out ones, at most 20,000 of each."""
    tables = [table.sorted() for table in (synthetic, seen, held_out)]
    check_jobs(tables, LEAST_JOBS)
    rng = stream(seed, "synth.privacy")
    # Equal numbers of seen and held-out jobs: more jobs would have closer ones.
    count = min(len(seen), len(held_out), MOST_ROWS)
    rows = [
        some_rows(len(table), most, rng)
        for table, most in zip(tables, (MOST_ROWS, count, count), strict=True)
    ]
    generated, known, unknown = (space[chosen] for space, chosen in zip(_space(*tables), rows, strict=True))
    trees = {"made": KDTree(generated), "seen": KDTree(known), "held_out": KDTree(unknown)}
    return RecordDistances(
        made_to_seen=trees["seen"].query(generated)[0],
        made_to_held_out=trees["held_out"].query(generated)[0],
        held_out_to_seen=trees["seen"].query(unknown)[0],
        seen_to_made=trees["made"].query(known)[0],
        held_out_to_made=trees["made"].query(unknown)[0],
    )


@dataclass(frozen=True)
class Roc:
    """ROC curve of membership inference by the distance to the closest generated job."""

    found: tuple[float, ...]
    """True-positive rate: share of the seen jobs within the threshold."""
    wrong: tuple[float, ...]
    """False-positive rate: share of the held-out jobs within the threshold."""
    best: tuple[float, float]
    """False- and true-positive rate where their difference, the advantage, is largest."""


def roc(near: Floats, far: Floats, *, points: int = POINTS) -> Roc:
    """ROC curve of classifying small distances as members of `near`.

    >>> roc(np.array([0.0, 0.0]), np.array([0.0, 1.0])).best
    (0.5, 1.0)
    """
    found, wrong = _within(near, far)
    best = int((found - wrong).argmax())
    kept = np.unique([*np.linspace(0, len(found) - 1, points).round().astype(np.int64), best])
    return Roc(
        (0.0, *found[kept].tolist()), (0.0, *wrong[kept].tolist()), (float(wrong[best]), float(found[best]))
    )


def advantage(near: Floats, far: Floats) -> float:
    """The maximum difference of the shares of `near` and `far` within a threshold; at least 0."""
    found, wrong = _within(near, far)
    return float(max(0.0, (found - wrong).max()))


def _within(near: Floats, far: Floats) -> tuple[Floats, Floats]:
    limits = np.unique(np.concatenate([near, far]))
    found, wrong = (np.searchsorted(np.sort(part), limits, side="right") / len(part) for part in (near, far))
    return found, wrong


def nearer_auc(near: Floats, far: Floats) -> float:
    """Probability that one of `near` is smaller than one of `far`; ties count half."""
    ordered = np.sort(far)
    above = len(far) - np.searchsorted(ordered, near, side="right")
    level = np.searchsorted(ordered, near, side="right") - np.searchsorted(ordered, near, side="left")
    return float((above + 0.5 * level).sum() / (len(near) * len(far)))


def _space(*tables: JobTable) -> list[Floats]:
    """Jobs as points: logarithms in standard deviations, categories at distance one."""
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


def compared_numbers(*tables: JobTable) -> list[Floats]:
    """The compared columns that all tables have, one row per job, as numbers with the same meaning in all."""
    every = [job_rows(table) for table in tables]
    names = [name for name in COMPARED if all(name in rows for rows in every)]
    columns = [same_numbers([rows[name] for rows in every]) for name in names]
    return [np.column_stack([column[place] for column in columns]) for place in range(len(tables))]
