"""State of a NumPy generator as bytes, for snapshots of environments."""

from __future__ import annotations

import ast

import numpy as np
import numpy.typing as npt

from kilowait.errors import InputError

__all__ = ["random_state_bytes", "restore_random_state"]

MAX_BYTES = 1_000
"""Maximum size of a state, bytes."""


def random_state_bytes(random: np.random.Generator) -> npt.NDArray[np.uint8]:
    """The state of a generator as bytes."""
    return np.frombuffer(repr(random.bit_generator.state).encode(), np.uint8).copy()


def restore_random_state(random: np.random.Generator, state: npt.NDArray[np.uint8]) -> None:
    """Restore the state of a generator; InputError if the bytes contain none.

    >>> random, other = np.random.default_rng(1), np.random.default_rng(2)
    >>> restore_random_state(other, random_state_bytes(random))
    >>> bool(random.random() == other.random())
    True
    """
    text = state.tobytes()[: MAX_BYTES + 1]
    try:
        # Brackets are counted, as the parser needs stack for each of them.
        if len(text) > MAX_BYTES or text.count(b"{") > 2 or text.count(b"(") + text.count(b"[") + text.count(b"-") > 0:
            raise ValueError
        random.bit_generator.state = ast.literal_eval(text.decode("ascii"))
    except (ValueError, SyntaxError, TypeError, KeyError, OverflowError, RecursionError, MemoryError):
        raise InputError("the snapshot has no valid state of the random generator; train again") from None
