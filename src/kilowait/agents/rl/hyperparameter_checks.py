"""Settings that cannot work are refused before anything is played."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from kilowait.agents.rl.device import PRECISIONS
from kilowait.errors import InputError, UnknownNameError

__all__ = ["check_settings"]

AT_LEAST_ONE = frozenset(
    "total_steps rollout epochs minibatches n batch capacity gradient_steps target_every atoms patience "
    "validate_every checkpoint_every".split()
)
ABOVE_ZERO = frozenset("learning_rate clip max_gradient target_kl temperature".split())
SHARES = frozenset(
    "discount trace priority correction exploration last_epsilon mixing target_entropy".split()
)
AT_LEAST_ZERO = frozenset("entropy value cost_limit cost_rate learning_starts".split())


def check_settings(settings: Any) -> None:
    """Check the fields of an algorithm's settings by what their names mean; None is checked by nobody.

    The same name means the same in every algorithm, so the bounds are written once.
    """
    for one in fields(settings):
        name, value = one.name, getattr(settings, one.name)
        if value is None:
            continue
        if name in AT_LEAST_ONE and value < 1:
            raise InputError(f"{name} is {value}; it must be at least 1")
        if name in ABOVE_ZERO and not value > 0:
            raise InputError(f"{name} is {value}; it must be above 0")
        if name in SHARES and not 0 <= value <= 1:
            raise InputError(f"{name} is {value}; it must be from 0 to 1")
        if name in AT_LEAST_ZERO and not value >= 0:
            raise InputError(f"{name} is {value}; it must be 0 or more")
        if name == "precision" and value not in PRECISIONS:
            raise UnknownNameError("precision", value, PRECISIONS)
