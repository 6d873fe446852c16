"""Range checks of hyperparameters, before training starts."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from kilowait.agents.rl.device import PRECISIONS
from kilowait.errors import InputError, UnknownNameError

__all__ = ["check_settings", "steps_per_update"]

AT_LEAST_ONE = frozenset(
    "total_timesteps n_steps n_step_return train_freq n_epochs n_minibatches batch_size buffer_size gradient_steps "
    "target_update_interval n_atoms patience validate_every checkpoint_every".split()
)
ABOVE_ZERO = frozenset("learning_rate clip_range max_grad_norm target_kl initial_ent_coef".split())
SHARES = frozenset(
    "gamma gae_lambda per_alpha per_beta exploration_fraction exploration_final_eps tau target_entropy".split()
)
AT_LEAST_ZERO = frozenset("ent_coef vf_coef cost_limit cost_rate learning_starts".split())


def check_settings(settings: Any) -> None:
    """Check the fields of an algorithm's settings by their names; None is not checked.

    A name has the same meaning in every algorithm, so the bounds are written once.
    """
    for field in fields(settings):
        name, value = field.name, getattr(settings, field.name)
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


def steps_per_update(settings: Any) -> int:
    """Steps of each environment between two updates: `train_freq` off-policy (D3QN, SAC), else `n_steps`."""
    return int(settings.train_freq if hasattr(settings, "train_freq") else settings.n_steps)
