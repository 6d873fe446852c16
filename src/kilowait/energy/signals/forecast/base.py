"""Base class of the forecasts: the series issued at a time, and its means by lead time."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import numpy as np
import numpy.typing as npt

from kilowait.errors import InputError
from kilowait.series import Series

__all__ = ["Forecast", "positive_s"]

Floats = npt.NDArray[np.float64]

_BLOCK = 2**19


class Forecast(ABC):
    """Forecasts of a series, issued at certain times."""

    horizon_s: float
    """Forecast horizon."""

    def issued(self, at_s: float) -> Series:
        """The forecast known at `at_s`, from then until `horizon_s` later: the last issue no later than `at_s`."""
        at = float(at_s)
        issue = float(self._issue_time_s(np.array([at]))[0])
        return self._issued_series(issue, at + self.horizon_s).between(at, at + self.horizon_s)

    def matrix(self, at_s: npt.ArrayLike, lead_edge_s: npt.ArrayLike) -> Floats:
        """Forecast means at many times: row i is the forecast known at ``at_s[i]``.

        Column j is the mean from ``at_s[i] + lead_edge_s[j]`` to ``at_s[i] + lead_edge_s[j + 1]``.
        """
        at, lead = np.asarray(at_s, np.float64), np.asarray(lead_edge_s, np.float64)
        if at.ndim != 1 or lead.ndim != 1 or len(lead) < 2 or lead[0] < 0 or not (np.diff(lead) > 0).all():
            raise InputError("give a list of times, and two or more increasing leads of 0 s or more")
        if lead[-1] > self.horizon_s:
            raise InputError(
                f"a lead of {lead[-1]:g} s exceeds the forecast horizon of {self.horizon_s:g} s; give shorter leads or "
                "a longer horizon_s"
            )
        means = np.empty((len(at), len(lead) - 1))
        # In blocks to limit memory; sorted, so that the times of one issue are in one or two blocks.
        blocks = math.ceil(len(at) * len(lead) / _BLOCK)
        for rows in np.array_split(np.argsort(at, kind="stable"), blocks) if len(at) else ():
            means[rows] = self._means(at[rows], lead)
        return means

    def _means(self, at: Floats, lead: Floats) -> Floats:
        means = np.empty((len(at), len(lead) - 1))
        issues, group = np.unique(self._issue_time_s(at), return_inverse=True)
        rows_by_issue = np.split(np.argsort(group, kind="stable"), np.cumsum(np.bincount(group))[:-1])
        for issue, rows in zip(issues.tolist(), rows_by_issue, strict=True):
            edge = at[rows, None] + lead
            issued = self._issued_series(issue, float(edge.max()))
            means[rows] = issued.mean(edge[:, :-1], edge[:, 1:])
        return means

    @abstractmethod
    def describe(self) -> str:
        """The forecast as text, printed with every result."""

    @abstractmethod
    def _issue_time_s(self, at: Floats) -> Floats:
        """The last issue time no later than each time."""

    @abstractmethod
    def _issued_series(self, issue_s: float, until_s: float) -> Series:
        """The series issued at `issue_s`, until `until_s` or later."""


def positive_s(value: float, name: str) -> float:
    """Validate a positive number of seconds."""
    if not (math.isfinite(value) and value > 0):
        raise InputError(f"{name} is {value}; it must be a finite number of seconds above 0")
    return float(value)
