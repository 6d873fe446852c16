"""Pickling of environments: the constructor's arguments and a snapshot, since compiled kernels cannot be pickled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kilowait.envs.vector_env import EngineVectorEnv

__all__ = ["pickled_state", "restore_pickled_state"]

_GYMNASIUM_FIELDS = ("spec", "render_mode", "closed", "_np_random", "_np_random_seed")
"""Attributes that Gymnasium sets on an environment."""


def pickled_state(env: EngineVectorEnv) -> dict[str, Any]:
    """What `restore_pickled_state` needs to make an environment that continues as this one does."""
    preferences = env.episode_preferences
    return {
        "arguments": env.arguments,
        "ranges": env.episode_ranges,
        "preferences": None if preferences is None else dict(preferences.preferences.units),
        "snapshot": env.snapshot(),
        "gymnasium": {name: vars(env)[name] for name in _GYMNASIUM_FIELDS if name in vars(env)},
    }


def restore_pickled_state(env: EngineVectorEnv, state: dict[str, Any]) -> None:
    """Create the environment again, with its own kernels and threads, in the saved state."""
    positional, named = env.arguments = state["arguments"]
    constructor: Any = type(env).__init__
    constructor(env, *positional, **named)
    if env.episode_preferences is None and state["preferences"] is not None:
        env.draw_preferences(state["preferences"])
    ranges, weights = state["ranges"]
    if weights is not None:
        env.set_episode_ranges([tuple(row) for row in ranges.tolist()], weights)
    env.restore(state["snapshot"])
    vars(env).update(state["gymnasium"])
