"""Validation of numeric arguments, with errors that name the argument and its value."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from kilowait.errors import InputError

Floats = npt.NDArray[np.float64]


def require(what: str, value: float, least: float = 0.0, most: float = math.inf) -> None:
    """Raise unless `value` is a finite number from `least` to `most`.

    >>> require("idle_w of the CPU", -3)
    Traceback (most recent call last):
    ...
    kilowait.errors.InputError: idle_w of the CPU is -3; it must be a number of at least 0
    """
    if not (math.isfinite(value) and least <= value <= most):
        upper = f" and at most {most:g}" if math.isfinite(most) else ""
        raise InputError(f"{what} is {value}; it must be a number of at least {least:g}{upper}")


def checked_numbers(what: str, values: npt.ArrayLike, least: float = -math.inf, most: float = math.inf) -> Floats:
    """The values as float64; an error with the first that is not a number from `least` to `most`.

    >>> checked_numbers("cpu utilization", [0.5, 1.5], 0, 1)
    Traceback (most recent call last):
    ...
    kilowait.errors.InputError: cpu utilization [1] is 1.5; it must be a number from 0 to 1
    """
    try:
        array = np.asarray(values, np.float64)
    except (TypeError, ValueError):
        raise InputError(f"{what} does not contain numbers; give one number or a list of numbers") from None
    valid = np.isfinite(array) & (array >= least) & (array <= most)
    if not valid.all():
        first = int(np.argmin(valid.ravel()))
        place = f" [{first}]" if array.ndim else ""
        span = "finite" if math.isinf(least) else f"from {least:g}" + (f" to {most:g}" if most < math.inf else "")
        raise InputError(f"{what}{place} is {array.ravel()[first]}; it must be a number {span}".rstrip())
    return array
