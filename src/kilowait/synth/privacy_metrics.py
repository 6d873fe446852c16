"""Privacy metrics of synthetic workloads: copies, membership inference and k-anonymity.

The reference is held-out jobs of the same machine that the generator has *not* seen: jobs as close to those as to the
training jobs are not copies. Rows are compared by size, request, run time, queue and status; users are ignored, as
they are renumbered. These are empirical metrics, not guarantees: nothing here is differentially private.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kilowait.errors import InputError, UnknownNameError
from kilowait.jobs import JobTable
from kilowait.synth.fidelity.job_features import job_rows, previous_job, shared_codes
from kilowait.synth.record_distances import (
    RecordDistances,
    compared_numbers,
    distance_auc,
    membership_inference_advantage,
    record_distances,
)

__all__ = ["Anonymity", "PrivacyMetrics", "anonymity", "anonymity_by_k", "privacy_metrics"]

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


def _class_users(jobs: JobTable, known: Sequence[str] | None) -> tuple[tuple[str, ...], npt.NDArray[np.int64]]:
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
