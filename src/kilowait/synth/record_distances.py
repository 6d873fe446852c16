"""Distances to the closest record (DCR): generated jobs to seen and to held-out real jobs.

Rows are compared by size, request, run time, queue and status, on logarithmic scales; users are ignored, as they are
renumbered.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.spatial import KDTree

from kilowait.jobs import JobTable
from kilowait.rng import stream
from kilowait.synth.fidelity.job_features import check_jobs, job_rows, sample_rows, shared_codes

__all__ = [
    "RecordDistances",
    "membership_inference_advantage",
    "record_distances",
    "compared_numbers",
    "distance_auc",
    "roc",
]

Floats = npt.NDArray[np.float64]

MIN_JOBS = 50
MAX_ROWS = 20_000
COMPARED = ("nodes", "gpus", "estimate_s", "runtime_s", "queue", "status")
"""Compared columns. Not the hour: a job copied to another time is a copy."""
POINTS = 160
"""Number of points of a stored curve."""


@dataclass(frozen=True, eq=False)
class RecordDistances:
    """Distances to the closest record, in standard deviations of the seen jobs' logarithms; 0 is a copy."""

    synthetic_to_seen: Floats
    """From every generated job to the closest seen one."""
    synthetic_to_held_out: Floats
    held_out_to_seen: Floats
    """From held-out jobs to the closest generated one: the reference for uncopied jobs."""
    seen_to_synthetic: Floats
    """From every seen job to the closest generated one."""
    held_out_to_synthetic: Floats

    def shares(self) -> dict[str, tuple[float, ...]]:
        """Share of the jobs at most ``at`` from the closest record, for the first three distances."""
        distances = {
            name: np.sort(getattr(self, name))
            for name in ("synthetic_to_seen", "synthetic_to_held_out", "held_out_to_seen")
        }
        at = np.unique(np.quantile(np.concatenate([*distances.values()]), np.linspace(0, 1, POINTS)))
        curves = {name: np.searchsorted(values, at, side="right") / len(values) for name, values in distances.items()}
        return {name: tuple(values.tolist()) for name, values in {"at": at, **curves}.items()}


def record_distances(synthetic: JobTable, seen: JobTable, held_out: JobTable, *, seed: int = 0) -> RecordDistances:
    """Distances between generated, seen and held-out jobs; as many seen as held-out ones, at most 20,000 of each."""
    tables = [table.sorted() for table in (synthetic, seen, held_out)]
    check_jobs(tables, MIN_JOBS)
    rng = stream(seed, "synth.privacy")
    # Equal numbers of seen and held-out jobs: more jobs would have closer ones.
    count = min(len(seen), len(held_out), MAX_ROWS)
    rows = [
        sample_rows(len(table), max_rows, rng) for table, max_rows in zip(tables, (MAX_ROWS, count, count), strict=True)
    ]
    synthetic_points, seen_points, held_out_points = (
        space[chosen] for space, chosen in zip(_space(*tables), rows, strict=True)
    )
    trees = {"synthetic": KDTree(synthetic_points), "seen": KDTree(seen_points), "held_out": KDTree(held_out_points)}
    return RecordDistances(
        synthetic_to_seen=trees["seen"].query(synthetic_points)[0],
        synthetic_to_held_out=trees["held_out"].query(synthetic_points)[0],
        held_out_to_seen=trees["seen"].query(held_out_points)[0],
        seen_to_synthetic=trees["synthetic"].query(seen_points)[0],
        held_out_to_synthetic=trees["synthetic"].query(held_out_points)[0],
    )


@dataclass(frozen=True)
class Roc:
    """ROC curve of membership inference by the distance to the closest generated job."""

    true_positive_rate: tuple[float, ...]
    """True-positive rate: share of the seen jobs within the threshold."""
    false_positive_rate: tuple[float, ...]
    """False-positive rate: share of the held-out jobs within the threshold."""
    best: tuple[float, float]
    """False- and true-positive rate where their difference, the advantage, is largest."""


def roc(near: Floats, far: Floats, *, points: int = POINTS) -> Roc:
    """ROC curve of classifying small distances as members of `near`.

    >>> roc(np.array([0.0, 0.0]), np.array([0.0, 1.0])).best
    (0.5, 1.0)
    """
    true_positive_rate, false_positive_rate = _within(near, far)
    best = int((true_positive_rate - false_positive_rate).argmax())
    points_kept = np.unique([*np.linspace(0, len(true_positive_rate) - 1, points).round().astype(np.int64), best])
    return Roc(
        (0.0, *true_positive_rate[points_kept].tolist()),
        (0.0, *false_positive_rate[points_kept].tolist()),
        (float(false_positive_rate[best]), float(true_positive_rate[best])),
    )


def membership_inference_advantage(near: Floats, far: Floats) -> float:
    """The maximum difference of the shares of `near` and `far` within a threshold; at least 0."""
    true_positive_rate, false_positive_rate = _within(near, far)
    return float(max(0.0, (true_positive_rate - false_positive_rate).max()))


def _within(near: Floats, far: Floats) -> tuple[Floats, Floats]:
    limits = np.unique(np.concatenate([near, far]))
    true_positive_rate, false_positive_rate = (
        np.searchsorted(np.sort(part), limits, side="right") / len(part) for part in (near, far)
    )
    return true_positive_rate, false_positive_rate


def distance_auc(near: Floats, far: Floats) -> float:
    """Probability that one of `near` is smaller than one of `far`; ties count half."""
    ordered = np.sort(far)
    above = len(far) - np.searchsorted(ordered, near, side="right")
    ties = np.searchsorted(ordered, near, side="right") - np.searchsorted(ordered, near, side="left")
    return float((above + 0.5 * ties).sum() / (len(near) * len(far)))


def _space(*tables: JobTable) -> list[Floats]:
    """Jobs as points: logarithms in standard deviations, categories at distance one."""
    features = [job_rows(table) for table in tables]
    names = [name for name in COMPARED if all(name in rows for rows in features)]
    points: list[list[Floats]] = [[] for _ in tables]
    for name in names:
        codes = shared_codes([rows[name] for rows in features])
        if name in ("queue", "status"):
            for category in np.unique(np.concatenate(codes)):
                for index, values in enumerate(codes):
                    points[index].append((values == category) / np.sqrt(2))
        else:
            scale = float(np.log1p(codes[1]).std()) or 1.0
            for index, values in enumerate(codes):
                points[index].append(np.log1p(values) / scale)
    return [np.column_stack(columns) for columns in points]


def compared_numbers(*tables: JobTable) -> list[Floats]:
    """The compared columns that all tables have, one row per job, as numbers with the same meaning in all."""
    features = [job_rows(table) for table in tables]
    names = [name for name in COMPARED if all(name in rows for rows in features)]
    columns = [shared_codes([rows[name] for rows in features]) for name in names]
    return [np.column_stack([column[index] for column in columns]) for index in range(len(tables))]
