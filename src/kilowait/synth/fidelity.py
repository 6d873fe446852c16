"""Fidelity: how much a generated workload is like a real one, in numbers.

Column by column (Kolmogorov-Smirnov, Wasserstein), pair by pair (correlations), all at once (can a classifier tell
the jobs apart?), over time (autocorrelation and spectrum of arrivals), and user by user. What people would wait is
measured elsewhere, by simulating both.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.stats import rankdata, wasserstein_distance

from kilowait.errors import InputError, MissingExtraError
from kilowait.jobs import JobTable
from kilowait.seeding import stream
from kilowait.synth.facts import DAY_S, clock_zero_s
from kilowait.synth.rows import check_jobs, common, job_before, job_rows, numbers_of, some_rows

__all__ = [
    "Distance",
    "Fidelity",
    "Pair",
    "arrival_pattern",
    "classifier_auc",
    "column_distances",
    "correlations",
    "fidelity",
    "user_statistics",
]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

LEAST_JOBS = 100
FOLDS = 5
MOST_ROWS = 25_000
"""Jobs of each workload that the classifier looks at."""
SESSION_S = 1800.0
"""Jobs of a user with no more than this between them are of one session."""
TREES = {
    "objective": "binary",
    "learning_rate": 0.1,
    "num_leaves": 31,
    "num_threads": 1,
    "deterministic": True,
}
ROUNDS = 100


@dataclass(frozen=True)
class Distance:
    """How far the values of one column are from the real ones."""

    column: str
    ks: float
    """Largest difference of the two distribution functions; 0: none, 1: nothing in common."""
    wasserstein: float
    """Mean distance by which values would have to be moved, in the column's unit."""
    wasserstein_share: float
    """The same over the real column's standard deviation."""


@dataclass(frozen=True)
class Pair:
    """How two columns go together."""

    kind: str
    """pearson (of logarithms), spearman (of ranks) or cramer (Cramér's V, of kinds)."""
    one: str
    other: str
    real: float
    made: float

    @property
    def difference(self) -> float:
        """Generated less real."""
        return self.made - self.real


@dataclass(frozen=True)
class Fidelity:
    """All there is to say of how like the two are."""

    distances: tuple[Distance, ...]
    pairs: tuple[Pair, ...]
    auc: float
    """Of a classifier on rows of columns, time and repetitions; 0.5: the two cannot be told apart."""
    auc_history: float
    """The same where it also sees the time since the user's job before and the change of run time."""
    arrivals: dict[str, tuple[float, float]]
    """Real and generated, by measure."""
    users: dict[str, tuple[float, float]]
    """Real and generated, by statistic."""

    @property
    def worst_ks(self) -> Distance:
        """The column that is farthest off."""
        return max(self.distances, key=lambda distance: distance.ks)

    @property
    def worst_pair(self) -> Pair:
        """The pair whose correlation is farthest off."""
        return max(self.pairs, key=lambda pair: abs(pair.difference))


def fidelity(real: JobTable, made: JobTable, *, seed: int = 0) -> Fidelity:
    """Compare a generated workload with a real one; needs the extra ``predict`` for the classifier."""
    check_jobs((real, made), LEAST_JOBS)
    real, made = real.sorted(), made.sorted()
    return Fidelity(
        column_distances(real, made),
        correlations(real, made),
        classifier_auc(real, made, seed=seed),
        classifier_auc(real, made, seed=seed, history=True),
        _beside(arrival_pattern(real), arrival_pattern(made)),
        _beside(user_statistics(real), user_statistics(made)),
    )


def _beside(one: dict[str, float], other: dict[str, float]) -> dict[str, tuple[float, float]]:
    return {name: (one[name], other[name]) for name in one}


# -- column by column ----------------------------------------------------------------------------


def column_distances(real: JobTable, made: JobTable) -> tuple[Distance, ...]:
    """Distances of all numeric columns both have; unknown values are left out.

    >>> from kilowait.synth import lublin
    >>> [distance.ks for distance in column_distances(lublin(200, 64), lublin(200, 64))]
    [0.0, 0.0, 0.0, 0.0, 0.0]
    """
    one, other = numbers_of(real.sorted()), numbers_of(made.sorted())
    found = []
    for name in one:
        if name not in other:
            continue
        left, right = (values[np.isfinite(values)] for values in (one[name], other[name]))
        if not (len(left) and len(right)):
            continue
        moved = float(wasserstein_distance(left, right))
        spread = float(left.std())
        found.append(
            Distance(name, _ks(left, right), moved, moved / spread if spread > 0 else float(moved > 0))
        )
    return tuple(found)


def _ks(one: Floats, other: Floats) -> float:
    every = np.concatenate([one, other])
    below = [np.searchsorted(np.sort(values), every, side="right") / len(values) for values in (one, other)]
    return float(np.abs(below[0] - below[1]).max())


# -- pair by pair --------------------------------------------------------------------------------


def correlations(real: JobTable, made: JobTable) -> tuple[Pair, ...]:
    """Correlations of numeric columns (of logarithms, and of ranks) and of kinds, real and generated."""
    real, made = real.sorted(), made.sorted()
    pairs = []
    one, other = numbers_of(real), numbers_of(made)
    names = [name for name in one if name in other and name != "hour"]
    for first, second in combinations(names, 2):
        for kind, measure in (("pearson", _pearson), ("spearman", _spearman)):
            pairs.append(
                Pair(
                    kind,
                    first,
                    second,
                    measure(one[first], one[second]),
                    measure(other[first], other[second]),
                )
            )
    named = ("user", "account", "queue", "status", "nodes", "estimate_s")
    kinds = [name for name in named if name in real and name in made]
    for first, second in combinations(kinds, 2):
        both = [_cramer(table[first], table[second]) for table in (real, made)]
        pairs.append(Pair("cramer", first, second, *both))
    return tuple(pairs)


def _pearson(one: Floats, other: Floats) -> float:
    return _correlation(np.log1p(one), np.log1p(other))


def _spearman(one: Floats, other: Floats) -> float:
    known = np.isfinite(one) & np.isfinite(other)
    return _correlation(rankdata(one[known]), rankdata(other[known]))


def _correlation(one: Floats, other: Floats) -> float:
    known = np.isfinite(one) & np.isfinite(other)
    left, right = one[known], other[known]
    if len(left) < 2 or not (np.ptp(left) > 0 and np.ptp(right) > 0):
        return 0.0
    return float(np.corrcoef(left, right)[0, 1])


def _cramer(one: npt.NDArray[Any], other: npt.NDArray[Any]) -> float:
    """Cramér's V: 0 for columns that know nothing of each other, 1 where one follows from the other."""
    rows, row = np.unique(one, return_inverse=True)
    columns, column = np.unique(other, return_inverse=True)
    least = min(len(rows), len(columns)) - 1
    if least < 1:
        return 0.0
    cells, counts = np.unique(row * len(columns) + column, return_counts=True)
    expected = np.bincount(row)[cells // len(columns)] * np.bincount(column)[cells % len(columns)]
    squares = float((counts.astype(np.float64) ** 2 / expected).sum()) - 1.0
    return float(np.sqrt(max(squares, 0.0) / least))


# -- all at once ---------------------------------------------------------------------------------


def classifier_auc(real: JobTable, made: JobTable, *, seed: int = 0, history: bool = False) -> float:
    """How well trees of LightGBM tell generated jobs from real ones: area under the ROC curve over five folds.

    0.5: not at all, 1: always; well below 0.5 where the same jobs are in both. They see the columns of a job, hour
    and weekday, the time since the last submission, and whether the job repeats what its user's job before asked
    for; with `history` also how long ago that came and how its run time differed.
    """
    try:
        import lightgbm
    except ImportError:
        raise MissingExtraError("lightgbm", "predict") from None
    rng = stream(seed, "synth.classifier")
    one, other = common(job_rows(real.sorted(), history=history), job_rows(made.sorted(), history=history))
    if not one:
        raise InputError("the two workloads have no column in common")
    count = min(len(real), len(made), MOST_ROWS)
    tables = [
        np.column_stack([columns[name][some_rows(len(columns[name]), count, rng)] for name in one])
        for columns in (one, other)
    ]
    rows = np.concatenate(tables)
    truth = np.repeat([0.0, 1.0], count)
    fold = rng.permutation(np.arange(2 * count) % FOLDS)
    guess = np.empty(2 * count)
    for number in range(FOLDS):
        train, test = fold != number, fold == number
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            data = lightgbm.Dataset(rows[train], truth[train], params={"verbose": -1})
            trees = lightgbm.train({**TREES, "seed": seed, "verbose": -1}, data, ROUNDS)
            guess[test] = trees.predict(rows[test], num_threads=1)
    return _auc(guess[truth == 1], guess[truth == 0])


def _auc(above: Floats, below: Floats) -> float:
    """Probability that one of `above` is larger than one of `below`; ties count half."""
    ranks = rankdata(np.concatenate([above, below]))[: len(above)]
    return float((ranks.sum() - len(above) * (len(above) + 1) / 2) / (len(above) * len(below)))


# -- over time and by user -----------------------------------------------------------------------


def arrival_pattern(jobs: JobTable) -> dict[str, float]:
    """Submissions an hour: how they vary, how they go with those an hour, a day and a week before, and their cycles.

    `day_power` and `week_power` are the shares of the variance that a sine of a day's or a week's period explains.

    >>> jobs = JobTable(
    ...     job_id=range(96),
    ...     submit_s=[3600 * (h // 4 * 24 + h % 4) for h in range(96)],
    ...     runtime_s=[1] * 96,
    ...     nodes=[1] * 96,
    ... )
    >>> round(arrival_pattern(jobs)["autocorrelation_day"], 2)
    1.0
    """
    hour = ((jobs["submit_s"] + clock_zero_s(jobs)) // 3600).astype(np.int64)
    counts = np.bincount(hour - hour.min()).astype(np.float64)
    pattern = {"mean_an_hour": float(counts.mean()), "dispersion": float(counts.var() / counts.mean())}
    for name, lag in (("hour", 1), ("day", 24), ("week", 168)):
        far = len(counts) > lag + 1
        pattern[f"autocorrelation_{name}"] = _correlation(counts[lag:], counts[:-lag]) if far else 0.0
    centred = counts - counts.mean()
    variance = float((centred**2).sum())
    for name, period_s in (("day", DAY_S), ("week", 7 * DAY_S)):
        turn = np.exp(-2j * np.pi * np.arange(len(counts)) * 3600 / period_s)
        power = 2 * abs(complex(centred @ turn)) ** 2 / len(counts)
        pattern[f"{name}_power"] = float(power / variance) if variance > 0 else 0.0
    return pattern


def user_statistics(jobs: JobTable) -> dict[str, float]:
    """Users: how many, how uneven, how long their sessions are, and how often they repeat themselves."""
    jobs = jobs.sorted()
    user = jobs.column("user")
    per_user = np.sort(np.unique(user, return_counts=True)[1])[::-1]
    before = job_before(jobs)
    known = before >= 0
    gap_s = (jobs["submit_s"] - jobs["submit_s"][before])[known]
    tenth = max(1, len(per_user) // 10)
    found = {
        "users": float(len(per_user)),
        "median_jobs_a_user": float(np.median(per_user)),
        "share_of_busiest_tenth": float(per_user[:tenth].sum() / len(jobs)),
        "jobs_a_session": float(len(jobs) / (len(jobs) - int((gap_s <= SESSION_S).sum()))),
        "median_user_gap_s": float(np.median(gap_s)) if len(gap_s) else 0.0,
    }
    for name in ("nodes", "estimate_s", "queue", "account", "status"):
        if name in jobs:
            same = (jobs[name] == jobs[name][before])[known]
            found[f"same_{name}"] = float(same.mean()) if len(same) else 0.0
    return found
