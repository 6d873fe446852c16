"""Synthetic user estimates of run times: too long, and rounded to a few common limits."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from kilowait.errors import InputError
from kilowait.rng import stream

__all__ = ["user_estimates"]

Floats = npt.NDArray[np.float64]

_HOUR_S = 3600.0
_DAY_S = 86400.0

LIMITS_S: tuple[float, ...] = (
    *(60.0 * minutes for minutes in (5, 10, 15, 30)),
    *(_HOUR_S * hours for hours in (1, 2, 3, 4, 6, 8, 12, 18, 24, 36, 48)),
)
"""Common walltime requests, seconds: 5 minutes to 48 hours. Above, whole days."""


def user_estimates(runtime_s: npt.ArrayLike, *, seed: int = 0) -> Floats:
    """A request for each run time, never shorter than it.

    The used fraction of the request is uniform between 0 and 1, as logs show approximately (A. Mu'alem
    and D. Feitelson, IEEE TPDS 12 (6), 2001); the request is then rounded up to the next of `LIMITS_S`, as
    most requests in logs are a few round numbers (D. Tsafrir, Y. Etsion, D. Feitelson, JSSPP 2005), and is
    at most the longest of them if the job fits into it. Jobs are sampled independently; real users
    repeat their requests.

    >>> user_estimates([1.0, 3000.0, 200_000.0]).tolist()[2]
    259200.0
    """
    runtime = np.asarray(runtime_s, np.float64)
    valid = np.isfinite(runtime) & (runtime >= 0)
    if not valid.all():
        row = int(np.argmin(valid))
        raise InputError(f"row {row}: the run time is {runtime[row]} s; it must be finite, and 0 or more")
    used = 1.0 - stream(seed, "synth.estimates").random(len(runtime))  # in (0, 1]
    limits = np.array(LIMITS_S)
    needed: Floats = np.minimum(runtime / used, np.maximum(limits[-1], runtime))
    index = np.searchsorted(limits, needed, side="left")
    days = np.ceil(needed / _DAY_S) * _DAY_S
    request: Floats = np.where(index < len(limits), limits[np.minimum(index, len(limits) - 1)], days)
    return request
