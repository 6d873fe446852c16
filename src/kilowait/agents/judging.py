"""Is an agent better than a rule? On jobs later than any it was trained on, window by window, with an interval.

Both schedule the same windows. What is reported is the ratio of their means, and how far it could be off: windows
are drawn again with replacement (a paired bootstrap). Overlapping windows share jobs, so take windows side by side.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.agents.linear import LinearAgent
from kilowait.agents.training import Objective, mean_bsld, window_values
from kilowait.cluster import Cluster
from kilowait.engine.ports import Rule
from kilowait.errors import InputError
from kilowait.jobs import JobTable
from kilowait.seeding import stream

__all__ = ["Verdict", "judge", "mean_interval", "ratio_interval"]

Floats = npt.NDArray[np.float64]
DRAWS = 2000
"""Draws of the bootstrap."""


@dataclass(frozen=True)
class Verdict:
    """The agent against one rule on the same windows; smaller values are better."""

    rule: str
    windows: int
    rule_mean: float
    rule_interval: tuple[float, float]
    """95 %, from windows drawn again; so are the others."""
    agent_mean: float
    agent_interval: tuple[float, float]
    ratio: float
    """agent_mean / rule_mean: below 1 the agent is better."""
    ratio_low: float
    ratio_high: float

    @property
    def words(self) -> str:
        """wins, loses or undecided: whether the interval lies below, above or around 1."""
        if self.ratio_high < 1:
            return "wins"
        return "loses" if self.ratio_low > 1 else "undecided"

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {**asdict(self), "words": self.words}


def judge(
    agent: LinearAgent,
    rules: Sequence[str] | Mapping[str, Rule],
    windows: Sequence[JobTable],
    cluster: Cluster,
    *,
    seed: int,
    backfill: str | int = "easy",
    objective: Objective = mean_bsld,
) -> list[Verdict]:
    """The agent against each rule, in the order given. Windows: see `split` and `spread_windows`."""
    if not windows:
        raise InputError("there is no window to judge on; cut some from the test part of the log")
    named: dict[str, str | Rule] = (
        dict(rules) if isinstance(rules, Mapping) else {name: name for name in rules}
    )
    ours = window_values(agent.rule, windows, cluster, backfill, objective)
    ours_mean, ours_interval = float(ours.mean()), mean_interval(ours, seed=seed)
    found = []
    for name, rule in named.items():
        theirs = window_values(rule, windows, cluster, backfill, objective)
        theirs_mean, theirs_interval = float(theirs.mean()), mean_interval(theirs, seed=seed)
        low, high = ratio_interval(ours, theirs, seed=seed)
        ratio = ours_mean / theirs_mean if theirs_mean > 0 else float("nan")
        means = (theirs_mean, theirs_interval, ours_mean, ours_interval)
        found.append(Verdict(name, len(windows), *means, ratio, low, high))
    return found


def mean_interval(values: Floats, *, seed: int) -> tuple[float, float]:
    """The 95 % bootstrap interval of the mean of windows.

    >>> mean_interval(np.array([2.0, 2.0]), seed=0)
    (2.0, 2.0)
    """
    low, high = np.percentile(values[_rows(len(values), seed)].mean(axis=1), (2.5, 97.5)).tolist()
    return low, high


def ratio_interval(ours: Floats, theirs: Floats, *, seed: int) -> tuple[float, float]:
    """The 95 % bootstrap interval of mean(ours) / mean(theirs), pairs drawn together.

    >>> ratio_interval(np.array([1.0, 2.0, 3.0]), np.array([2.0, 4.0, 6.0]), seed=0)
    (0.5, 0.5)
    """
    rows = _rows(len(ours), seed)
    below = theirs[rows].mean(axis=1)
    ratios = ours[rows].mean(axis=1) / np.where(below > 0, below, np.nan)
    low, high = np.percentile(ratios, (2.5, 97.5)).tolist()
    return low, high


def _rows(count: int, seed: int) -> npt.NDArray[np.int64]:
    """Windows drawn again, a draw a row."""
    return stream(seed, "agents.bootstrap").integers(0, count, (DRAWS, count))
