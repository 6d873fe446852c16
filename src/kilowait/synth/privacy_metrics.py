"""Privacy metrics of synthetic workloads: distances to the closest record, copies, membership inference, k-anonymity.

The reference is held-out jobs of the same machine that the generator has *not* seen: jobs as close to those as to the
training jobs are not copies. Rows are compared by size, request, run time, queue and status, distances on logarithmic
scales; users are ignored, as they are renumbered. These are empirical metrics, not guarantees: nothing here is
differentially private.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.spatial import KDTree

from kilowait.errors import InputError, UnknownNameError
from kilowait.jobs import JobTable
from kilowait.rng import stream
from kilowait.synth.fidelity.job_features import check_jobs, job_rows, previous_job, sample_rows, shared_codes
from kilowait.synth.log_schema import Floats, Ints

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


def _compared_codes(tables: Sequence[JobTable]) -> dict[str, list[Floats]]:
    """The compared columns that all tables have, as numbers with the same meaning in all."""
    features = [job_rows(table) for table in tables]
    names = [name for name in COMPARED if all(name in rows for rows in features)]
    return {name: shared_codes([rows[name] for rows in features]) for name in names}


def _space(*tables: JobTable) -> list[Floats]:
    """Jobs as points: logarithms in standard deviations, categories at distance one."""
    points: list[list[Floats]] = [[] for _ in tables]
    for name, codes in _compared_codes(tables).items():
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
    columns = _compared_codes(tables).values()
    return [np.column_stack([column[index] for column in columns]) for index in range(len(tables))]


# -- copies and membership inference --------------------------------------------------------------


KNOWN = ("nodes", "gpus", "estimate_s", "queue", "hour")
"""Default quasi-identifiers: what an attacker may know of a job."""
TOLERANCE = 0.08
"""Tolerance by which a metric may exceed its value for uncopied jobs. Real weeks of four logs of 21 weeks and more,
split into thirds as generated, seen and held-out, exceed it by at most 0.07; those of a log of 13 weeks by
up to 0.43 (python -m benchmarks.reproduce.privacy_baseline)."""
CLASSES = (2, 3, 5, 10, 20)
"""Values of k for k-anonymity."""


@dataclass(frozen=True)
class PrivacyMetrics:
    """Privacy metrics of a synthetic workload with respect to its training jobs."""

    nearer_to_seen: float
    """Share of generated jobs closer to a seen job than to any held-out one; 0.5: as close to both."""
    closest_seen: float
    """Median distance of a generated job to the closest seen one, in standard deviations of the columns."""
    closest_held_out: float
    """The same to held-out jobs."""
    copies: float
    """Share of generated jobs that equal a seen one in every column but the time."""
    copies_of_held_out: float
    """The same for held-out jobs: how many are equal by chance."""
    copied_pairs: float
    """Share of jobs that, with their user's previous job, equal two consecutive seen ones: a copied sequence."""
    copied_pairs_of_held_out: float
    membership_auc: float
    """AUC of a membership attack by the distance to the closest generated job; 0.5: chance."""
    membership_advantage: float
    """Membership advantage: maximum of true-positive less false-positive rate; 0: none, 1: all are identified."""

    @property
    def exceeded(self) -> tuple[str, ...]:
        """Metrics that exceed their value for uncopied jobs by more than `TOLERANCE`."""
        excess = {
            "copies": self.copies - self.copies_of_held_out,
            "copied_pairs": self.copied_pairs - self.copied_pairs_of_held_out,
            "nearer_to_seen": self.nearer_to_seen - 0.5,
            "membership_advantage": self.membership_advantage,
        }
        return tuple(name for name, difference in excess.items() if difference > TOLERANCE)


def privacy_metrics(
    synthetic: JobTable, seen: JobTable, held_out: JobTable, *, seed: int = 0, close: RecordDistances | None = None
) -> PrivacyMetrics:
    """Compare generated jobs with the training jobs and with held-out jobs.

    Args:
        synthetic: generated jobs.
        seen: the generator's training jobs.
        held_out: jobs of the same machine and time, not seen; for example random weeks of the log.
        seed: seed of the row subsampling.
        close: their precomputed `record_distances`.
    """
    tables = [table.sorted() for table in (synthetic, seen, held_out)]
    distances = record_distances(synthetic, seen, held_out, seed=seed) if close is None else close
    copies, pairs = (_copies(*tables, before=before) for before in (False, True))
    ties = distances.synthetic_to_seen == distances.synthetic_to_held_out
    return PrivacyMetrics(
        nearer_to_seen=float(
            (distances.synthetic_to_seen < distances.synthetic_to_held_out).mean() + 0.5 * ties.mean()
        ),
        closest_seen=float(np.median(distances.synthetic_to_seen)),
        closest_held_out=float(np.median(distances.synthetic_to_held_out)),
        copies=copies[0],
        copies_of_held_out=copies[1],
        copied_pairs=pairs[0],
        copied_pairs_of_held_out=pairs[1],
        membership_auc=distance_auc(distances.seen_to_synthetic, distances.held_out_to_synthetic),
        membership_advantage=membership_inference_advantage(
            distances.seen_to_synthetic, distances.held_out_to_synthetic
        ),
    )


def _copies(synthetic: JobTable, seen: JobTable, held_out: JobTable, *, before: bool) -> tuple[float, float]:
    """Share of generated and of held-out jobs that equal a seen one; with `before`, together with the user's previous
    job."""
    rows = compared_numbers(synthetic, seen, held_out)
    if before:
        pairs = []
        for table, values in zip((synthetic, seen, held_out), rows, strict=True):
            previous = previous_job(table)
            pairs.append(np.column_stack([values[previous >= 0], values[previous[previous >= 0]]]))
        rows = pairs
    seen_rows = {row.tobytes() for row in rows[1]}
    shares = [
        float(np.mean([row.tobytes() in seen_rows for row in values])) if len(values) else 0.0
        for values in (rows[0], rows[2])
    ]
    return shares[0], shares[1]


# -- k-anonymity -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Anonymity:
    """k-anonymity: how many users share the same quasi-identifiers."""

    known: tuple[str, ...]
    k: int
    jobs_below: float
    """Share of jobs in classes of fewer than k users."""
    smallest: int
    """Number of users of the smallest class."""


def anonymity(jobs: JobTable, *, known: Sequence[str] | None = None, k: int = 5) -> Anonymity:
    """k-anonymity of a workload: jobs with equal `known` columns form a class; the size of a class is its number of
    users.

    >>> jobs = JobTable(job_id=[1, 2, 3], submit_s=[0, 1, 2], runtime_s=[9, 9, 9], nodes=[4, 4, 8], user=[1, 2, 1])
    >>> anonymity(jobs, known=["nodes"], k=2)
    Anonymity(known=('nodes',), k=2, jobs_below=0.3333333333333333, smallest=1)
    """
    if k < 1:
        raise InputError(f"k is {k}; it must be at least 1")
    names, users = _class_users(jobs, known)
    return Anonymity(names, k, float((users < k).mean()), int(users.min()))


def anonymity_by_k(jobs: JobTable, ks: Sequence[int] = CLASSES) -> dict[int, float]:
    """The share of jobs in classes of fewer than k users, for several k.

    >>> jobs = JobTable(job_id=[1, 2], submit_s=[0, 1], runtime_s=[9, 9], nodes=[4, 4], user=[1, 2])
    >>> anonymity_by_k(jobs, (2, 3))
    {2: 0.0, 3: 1.0}
    """
    users = _class_users(jobs, None)[1]
    return {k: float((users < k).mean()) for k in ks}


def _class_users(jobs: JobTable, known: Sequence[str] | None) -> tuple[tuple[str, ...], Ints]:
    """The quasi-identifiers, and the number of users in the class of every job."""
    rows = job_rows(jobs.sorted())
    names = tuple(name for name in KNOWN if name in rows) if known is None else tuple(known)
    for name in names:
        if name not in rows:
            raise UnknownNameError("quasi-identifier column", name, rows)
    numbers = np.column_stack([shared_codes([rows[name]])[0] for name in names])
    classes = np.unique(numbers, axis=0, return_inverse=True)[1].ravel()
    user_classes = np.unique(np.stack([classes, jobs.sorted().column("user")]), axis=1)[0]
    return names, np.bincount(user_classes)[classes]
