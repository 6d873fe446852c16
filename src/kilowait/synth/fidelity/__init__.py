"""Fidelity metrics: similarity of a generated workload to a real one.

Distances by column (Kolmogorov-Smirnov, Wasserstein), correlations by pair of columns, a classifier on all columns,
autocorrelation and spectrum of arrivals, and user statistics. Waits in simulations of both are compared elsewhere
(`kilowait.experiments.synthetic_score`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kilowait.jobs import JobTable
from kilowait.synth.fidelity.distances import ColumnPair, Distance, column_distances, correlations, distance
from kilowait.synth.fidelity.job_features import check_jobs, classifier_test
from kilowait.synth.fidelity.workload_statistics import arrival_pattern, has_users, user_distributions, user_statistics

__all__ = ["Fidelity", "fidelity"]

MIN_JOBS = 100


@dataclass(frozen=True)
class Fidelity:
    """Fidelity metrics of two workloads."""

    distances: tuple[Distance, ...]
    pairs: tuple[ColumnPair, ...]
    auc: float
    """AUC of a classifier with job columns, time, and repetitions; 0.5: indistinguishable."""
    auc_history: float
    """The same with the time since the user's previous job and the change of run time as features."""
    arrivals: dict[str, tuple[float, float]]
    """Real and generated, by measure."""
    users: dict[str, tuple[float, float]]
    """Real and generated, by statistic; empty where one of the two has no users."""
    user_distances: tuple[Distance, ...] = ()
    """Distances of jobs per user, jobs per session and time between a user's jobs; empty where there are no users."""
    feature_importance: Mapping[str, float] = field(default_factory=dict)
    """Feature importance of the classifier (share of gain), largest first."""
    feature_importance_history: Mapping[str, float] = field(default_factory=dict)
    """The same of the classifier with the user's history."""

    @property
    def worst_ks(self) -> Distance:
        """The column with the largest Kolmogorov-Smirnov distance."""
        return max(self.distances, key=lambda distance: distance.ks)

    @property
    def worst_pair(self) -> ColumnPair:
        """The pair with the largest difference of correlation."""
        return max(self.pairs, key=lambda pair: abs(pair.difference))


def fidelity(real: JobTable, synthetic: JobTable, *, seed: int = 0) -> Fidelity:
    """Compare a generated workload with a real one; needs the extra ``predict`` for the classifier."""
    check_jobs((real, synthetic), MIN_JOBS)
    real, synthetic = real.sorted(), synthetic.sorted()
    job_result, history_result = (
        classifier_test(real, synthetic, seed=seed, history=history) for history in (False, True)
    )
    users: dict[str, tuple[float, float]] = {}
    user_distances: tuple[Distance, ...] = ()
    if has_users(real) and has_users(synthetic):
        users = _paired(user_statistics(real), user_statistics(synthetic))
        synthetic_numbers = user_distributions(synthetic)
        user_distances = tuple(
            distance(name, values, synthetic_numbers[name])
            for name, values in user_distributions(real).items()
            if len(values) and len(synthetic_numbers[name])
        )
    return Fidelity(
        column_distances(real, synthetic),
        correlations(real, synthetic),
        job_result.auc,
        history_result.auc,
        _paired(arrival_pattern(real), arrival_pattern(synthetic)),
        users,
        user_distances,
        job_result.feature_importance,
        history_result.feature_importance,
    )


def _paired(one: dict[str, float], other: dict[str, float]) -> dict[str, tuple[float, float]]:
    """The values that both have."""
    return {name: (one[name], other[name]) for name in one if name in other}
