"""Check of actions before they are passed to the engine."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.errors import InputError

__all__ = ["checked_actions"]


def checked_actions(actions: Any, copies: int, choices: int) -> npt.NDArray[np.int64]:
    """The actions as an array, one per environment copy; raises an error unless they are integers in range.

    Floats are refused even if they are whole, as by Gymnasium's `Discrete`: rounding would choose another action than
    the caller meant, and bools are masks rather than actions.

    >>> checked_actions([np.int32(3), 0], copies=2, choices=4).tolist()
    [3, 0]
    """
    try:
        array = np.asarray(actions)
    except ValueError:  # a ragged list
        array = np.array(None)
    kinds = {type(value) for value in actions} if isinstance(actions, (list, tuple)) else set()
    if array.dtype.kind not in "iu" or kinds & {bool, np.bool_}:  # numpy reads [True, 2] as integers
        raise InputError(f"actions {actions!r} are not integers; {_remedy(copies, choices)}")
    if array.shape != (copies,) or int(array.min()) < 0 or int(array.max()) >= choices:
        raise InputError(f"actions {actions!r}; {_remedy(copies, choices)}")
    return np.ascontiguousarray(array, np.int64)


def _remedy(copies: int, choices: int) -> str:
    return f"give whole numbers from 0 to {choices - 1}, of an integer type, one per environment copy ({copies})"
