"""Checks of a training state before it is restored: the same structure, types and shapes as the state it replaces."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np
import torch
from torch import Tensor

from kilowait.agents.rl.replay_buffer import ReplayBuffer
from kilowait.agents.rl.training_result import Update
from kilowait.files.fields import Anything, Field, Number, Record, Values, check_fields

__all__ = ["StateMismatch", "check_like", "check_part", "check_progress"]

MAX_STEPS = 10**15
_COUNT = Number(0, MAX_STEPS, whole=True)
_PROGRESS = Record(
    {
        "identity": Record({"settings": Values(Anything())}),
        "spec": Values(Anything()),
        "number": _COUNT,
        "steps": _COUNT,
        "validations_without_best": _COUNT,
    }
)
_ADAM_STATE = ("step", "exp_avg", "exp_avg_sq", "max_exp_avg_sq")
_UPDATE_COUNTS = ("number", "of", "steps")


class StateMismatch(ValueError):
    """A part of a training state differs from the state that it would replace."""


def check_progress(state: Mapping[str, Any], source: str) -> None:
    """Check the counters and the history of a training state.

    Args:
        state: contents of the file.
        source: the file, for the error.
    """
    names: dict[str, Field] = dict(_PROGRESS.required)
    check_fields({name: state[name] for name in names if name in state}, _PROGRESS, source, remedy="train again")
    if not isinstance(state.get("best"), float):
        raise StateMismatch(f"best is {_shown(state.get('best'))}, not a number")
    history = state.get("history")
    if not isinstance(history, list):
        raise StateMismatch(f"history is {_shown(history)}, not a list")
    expected = {item.name for item in fields(Update)}
    for number, update in enumerate(history):
        place = f"history[{number}]"
        if not isinstance(update, dict) or set(update) != expected:
            raise StateMismatch(f"{place} is not the record of an update")
        for name, value in update.items():
            if name == "losses":
                fine = isinstance(value, dict) and all(
                    isinstance(key, str) and isinstance(loss, float | int) for key, loss in value.items()
                )
            else:
                fine = isinstance(value, int if name in _UPDATE_COUNTS else float | int)
            if not fine:
                raise StateMismatch(f"{place}.{name} is {_shown(value)}")
    for name in ("parts", "observation", "environment"):
        if not isinstance(state.get(name), dict):
            raise StateMismatch(f"{name} is {_shown(state.get(name))}, not a dict")


def check_part(part: Any, saved: Any, place: str, observation: Mapping[str, Any]) -> None:
    """Check the saved state of a network, optimizer, generator or buffer against the part that it would replace.

    Args:
        part: the part.
        saved: its saved state.
        place: its name, for the error.
        observation: arrays of the environments, whose types and shapes those of a replay buffer must have.
    """
    if isinstance(part, torch.optim.Optimizer):
        _check_adam(part, saved, place)
    elif isinstance(part, ReplayBuffer):
        _check_replay(part, saved, place, observation)
    else:
        check_like(saved, part.state_dict(), place, finite=isinstance(part, torch.nn.Module))


def check_like(saved: Any, current: Any, place: str, *, finite: bool = False, shapes: bool = True) -> None:
    """Check that a nested state has the structure of another one.

    Args:
        saved: the state to check.
        current: a valid state.
        place: its name, for the error.
        finite: whether tensors must be finite.
        shapes: whether arrays must have the same shapes, not only as many dimensions.
    """
    if isinstance(current, Mapping):
        if not isinstance(saved, dict) or set(saved) != set(current):
            found = ", ".join(map(str, saved))[:60] if isinstance(saved, dict) else _shown(saved)
            raise StateMismatch(f"{place} has {found or 'nothing'}, not {', '.join(map(str, current))[:200]}")
        for name, item in current.items():
            check_like(saved[name], item, f"{place}.{name}", finite=finite, shapes=shapes)
    elif isinstance(current, list | tuple):
        if not isinstance(saved, type(current)) or len(saved) != len(current):
            raise StateMismatch(f"{place} is {_shown(saved)}, not a {type(current).__name__} of {len(current)}")
        for number, (found, item) in enumerate(zip(saved, current, strict=True)):
            check_like(found, item, f"{place}[{number}]", finite=finite, shapes=shapes)
    elif isinstance(current, Tensor | np.ndarray):
        kind = Tensor if isinstance(current, Tensor) else np.ndarray
        if not isinstance(saved, kind) or saved.dtype != current.dtype:
            raise StateMismatch(f"{place} is {_shown(saved)}, not an array of {current.dtype}")
        if saved.shape != current.shape if shapes else saved.ndim != current.ndim:
            raise StateMismatch(f"{place} has the shape {tuple(saved.shape)}, not {tuple(current.shape)}")
        if finite and not torch.as_tensor(saved).isfinite().all():
            raise StateMismatch(f"{place} has values that are not finite")
    elif isinstance(current, float) and not isinstance(current, bool):
        if isinstance(saved, bool) or not isinstance(saved, float | int):
            raise StateMismatch(f"{place} is {_shown(saved)}, not a number")
    elif type(saved) is not type(current):
        raise StateMismatch(f"{place} is {_shown(saved)}, not of type {type(current).__name__}")


def _check_adam(optimizer: torch.optim.Optimizer, saved: Any, place: str) -> None:
    """Check the state of an Adam optimizer: moments of the shapes of its parameters."""
    if not isinstance(saved, dict) or set(saved) != {"state", "param_groups"} or not isinstance(saved["state"], dict):
        raise StateMismatch(f"{place} is {_shown(saved)}, not the state of an optimizer")
    current = optimizer.state_dict()["param_groups"]
    groups = saved["param_groups"]
    if not isinstance(groups, list) or len(groups) != len(current):
        raise StateMismatch(f"{place}.param_groups is {_shown(groups)}, not a list of {len(current)}")
    for number, (group, known) in enumerate(zip(groups, current, strict=True)):
        group_place = f"{place}.param_groups[{number}]"
        if not isinstance(group, dict) or set(group) != set(known) or group["params"] != known["params"]:
            raise StateMismatch(f"{group_place} is not that of this optimizer")
        for name, value in group.items():
            if name in ("lr", "eps", "weight_decay"):
                if isinstance(value, bool) or not isinstance(value, float | int) or not 0 <= value < np.inf:
                    raise StateMismatch(f"{group_place}.{name} is {_shown(value)}, not a number of at least 0")
            elif name in ("fused", "foreach"):
                if not (value is None or isinstance(value, bool)):
                    raise StateMismatch(f"{group_place}.{name} is {_shown(value)}")
            elif value != known[name]:
                raise StateMismatch(f"{group_place}.{name} is {_shown(value)}, not {known[name]}")
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    for key, moments in saved["state"].items():
        if isinstance(key, bool) or not isinstance(key, int) or not 0 <= key < len(parameters):
            raise StateMismatch(f"{place}.state has the parameter {_shown(key)}")
        if not isinstance(moments, dict) or not set(_ADAM_STATE[:3]) <= set(moments) <= set(_ADAM_STATE):
            raise StateMismatch(f"{place}.state.{key} has not the moments of Adam")
        for name, moment in moments.items():
            shape = torch.Size([]) if name == "step" else parameters[key].shape
            if not isinstance(moment, Tensor) or moment.shape != shape or moment.dtype != torch.float32:
                raise StateMismatch(f"{place}.state.{key}.{name} is {_shown(moment)}, not of shape {tuple(shape)}")
            if not moment.isfinite().all() or (name != "exp_avg" and (moment < 0).any()):
                raise StateMismatch(f"{place}.state.{key}.{name} has values that are not finite, or below 0")


def _check_replay(replay: ReplayBuffer, saved: Any, place: str, observation: Mapping[str, Any]) -> None:
    """Check the state of a replay buffer: as many rows as it has stored, with the types of the buffer."""
    names = {"stored_steps", "max_priority", "leaves", "steps", "observations"}
    if not isinstance(saved, dict) or set(saved) != names:
        raise StateMismatch(f"{place} is {_shown(saved)}, not the state of a replay buffer")
    stored = saved["stored_steps"]
    if isinstance(stored, bool) or not isinstance(stored, int) or not 0 <= stored <= MAX_STEPS:
        raise StateMismatch(f"{place}.stored_steps is {_shown(stored)}")
    filled = min(stored, replay.slots)
    current = replay.state_dict()
    leaves = torch.zeros(filled * replay.envs, dtype=current["leaves"].dtype)
    check_like(saved["leaves"], leaves, f"{place}.leaves", finite=True)
    check_like(saved["max_priority"], current["max_priority"], f"{place}.max_priority", finite=True)
    if (saved["leaves"] < 0).any():
        raise StateMismatch(f"{place}.leaves has priorities below 0")
    expected = {name: array.new_zeros((filled, *array.shape[1:])) for name, array in current["steps"].items()}
    check_like(saved["steps"], expected, f"{place}.steps", finite=True)
    actions = observation["mask"].shape[1]
    if ((saved["steps"]["actions"] < 0) | (saved["steps"]["actions"] >= actions)).any():
        raise StateMismatch(f"{place}.steps.actions has actions that are not from 0 to {actions - 1}")
    rows = {
        name: torch.from_numpy(np.asarray(array)).new_zeros((filled, *array.shape))
        for name, array in observation.items()
    }
    check_like(saved["observations"], rows if filled else {}, f"{place}.observations")


def _shown(value: Any) -> str:
    if isinstance(value, Tensor | np.ndarray):
        return f"{value.dtype} {tuple(value.shape)}"
    return repr(value)[:60] if isinstance(value, str | int | float | type(None)) else f"a {type(value).__name__}"
