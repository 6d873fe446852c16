"""State of a training run: validation, checkpoints, history and progress after every update.

What an update does belongs to the algorithm (`Learner`). A folder contains two files: ``last.safetensors``, with
everything needed to resume exactly (weights, optimizer, random states, environments, replay buffer), and ``agent.pt``,
the best validated network, or the last one without validation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import asdict, fields, replace
from os import PathLike
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch
from torch import Tensor

from kilowait.agents.networks.factory import check_spec, save_network
from kilowait.agents.networks.spec import spec_to_dict
from kilowait.agents.rl.device import use_device
from kilowait.agents.rl.env_protocol import ObservationArrays, check_vector
from kilowait.agents.rl.learner import Learner, LearnerOptions, Stateful, TrainingResult, Update, UpdateMetrics
from kilowait.agents.rl.replay_buffer import ReplayBuffer
from kilowait.checkpoint import Checkpoint, StateFormat
from kilowait.errors import InputError, TrainingError
from kilowait.files import output_lock
from kilowait.files.fields import Anything, Field, Number, Record, Values, check_fields

FORMAT = StateFormat("kilowait checkpoint", version=2, remedy="train again, or take an earlier file")
LAST_CHECKPOINT_FILE = "last.safetensors"
AGENT = "agent.pt"
MAX_CHECKPOINT_INTERVAL_S = 120.0
"""Maximum time between checkpoints, seconds, independent of the settings."""
MAY_DIFFER = ("settings total_timesteps", "settings patience", "settings checkpoint_every")
"""A longer training or another patience can be resumed; any other difference is another training."""

MAX_STEPS = 10**15
_COUNT = Number(0, MAX_STEPS, whole=True)
_PROGRESS = Record({"spec": Values(Anything()), "number": _COUNT, "steps": _COUNT, "validations_without_best": _COUNT})
_ADAM_STATE = ("step", "exp_avg", "exp_avg_sq", "max_exp_avg_sq")
_UPDATE_COUNTS = ("number", "of", "steps")


class TrainingState:
    """State of one training run: a learner, and the progress of its training."""

    def __init__(self, learner: Learner[Any], options: LearnerOptions) -> None:
        folder, warm = options.get("checkpoint_dir"), options.get("warm")
        check_vector(learner.vec, checkpoints=folder is not None)
        self.vec, self.settings, self.network = learner.vec, learner.settings, learner.network
        self.updates = learner.updates
        self.parts: dict[str, Stateful] = {"network": learner.network, **learner.parts}
        self.folder = None if folder is None else Path(folder)
        self.validate, self.progress, self.warm = options.get("validate"), options.get("progress"), warm
        self.identity: dict[str, Any] = {
            "algorithm": learner.name,
            "seed": options["seed"],
            "settings": asdict(learner.settings),
            "envs": learner.vec.num_envs,
            "warm start": None if warm is None else asdict(warm.settings),
        }
        self.number = 0
        """Number of finished updates."""
        self.steps = 0
        self.history: list[Update] = []
        self.best, self.validations_without_best = math.nan, 0
        self.best_weights: dict[str, Any] | None = None
        self.last_checkpoint: str | None = None
        """The last good checkpoint, for messages."""
        self._since = self._saved_at = perf_counter()

    def begin(self, resume: str | PathLike[str] | None) -> ObservationArrays:
        """The first observation: of new environments, or of the checkpoint (file or folder) to resume."""
        if resume is None:
            if self.warm is not None:
                self.warm(self.network, self.identity["algorithm"], self.identity["seed"])
                self._validate()  # the trained network must be better than it
            self._since = perf_counter()
            return self.vec.reset(seed=self.identity["seed"])[0]
        path = Path(resume)
        path = path / LAST_CHECKPOINT_FILE if path.is_dir() else path
        state = self._checkpoint(path).read()
        try:
            observation = self._restore(state, path)
        except StateMismatch as problem:
            raise InputError(f"{path}: {problem}; {FORMAT.remedy}") from None
        self.last_checkpoint = f"{path} (update {self.number})"
        self._since = perf_counter()
        return observation

    def _restore(self, state: dict[str, Any], path: Path) -> ObservationArrays:
        """Restore a state once all of it is checked; returns the observation."""
        check_progress(state, str(path))
        check_spec(state["spec"], self.vec.spec_of_observation, path)
        check_vector(self.vec, checkpoints=True)
        if set(state["parts"]) != set(self.parts):
            raise StateMismatch(f"parts has {', '.join(map(str, state['parts']))[:200]}, not {', '.join(self.parts)}")
        current, _ = self.vec.reset(seed=self.identity["seed"])  # some environments require a reset before restore
        for name, part in self.parts.items():
            check_part(part, state["parts"][name], f"parts.{name}", current)
        if state.get("best_weights") is not None:
            check_part(self.network, state["best_weights"], "best_weights", current)
        check_like(state["observation"], dict(current), "observation")
        check_like(state["environment"], self.vec.snapshot(), "environment", shapes=False)
        self.vec.restore(state["environment"])
        try:
            for name, part in self.parts.items():
                part.load_state_dict(state["parts"][name])
        except RuntimeError as problem:
            raise StateMismatch(f"parts.{name} cannot be restored ({problem})") from None
        self.number, self.steps, self.validations_without_best = (
            state["number"],
            state["steps"],
            state["validations_without_best"],
        )
        self.best, self.best_weights = state["best"], state.get("best_weights")
        self.history = [replace(Update(**update), of=self.updates) for update in state["history"]]
        observation: ObservationArrays = state["observation"]
        return observation

    @property
    def done(self) -> bool:
        """Whether all updates are finished, or validation has not improved for `patience` validations."""
        patience = self.settings.patience
        return self.number >= self.updates or (patience is not None and self.validations_without_best >= patience)

    def end_update(self, observation: ObservationArrays, metrics: UpdateMetrics, *, steps: int) -> None:
        """Finish an update: validate, record, write a checkpoint. Raises TrainingError if a number is not finite."""
        losses, episodes = metrics.losses, metrics.episodes
        self._check_finite(losses)
        self.number += 1
        self.steps += steps
        current = perf_counter()
        rate, self._since = steps / max(current - self._since, 1e-9), current
        validation = self._validate()
        record = Update(
            self.number, self.updates, self.steps, episodes["return"], episodes["metric"],
            dict(losses), metrics.entropy, metrics.kl, validation, self.best, rate,
        )  # fmt: skip
        self.history.append(record)
        if self.folder is not None and self._checkpoint_due(current):
            self._write(self.folder, observation)
            self._saved_at = perf_counter()
        if self.progress is not None:
            self.progress(record)

    def _checkpoint_due(self, current: float) -> bool:
        """Whether to write a checkpoint: by `checkpoint_every`, or after `MAX_CHECKPOINT_INTERVAL_S`."""
        scheduled = self.done or self.number % self.settings.checkpoint_every == 0
        return scheduled or self.number == 1 or current - self._saved_at > MAX_CHECKPOINT_INTERVAL_S

    def result(self) -> TrainingResult:
        """The result; the network has its best weights if there was a validation."""
        if self.best_weights is not None:
            self.network.load_state_dict(self.best_weights)
        return TrainingResult(self.network.eval(), self.settings, self.history)

    def _validate(self) -> float:
        if self.validate is None or (self.number % self.settings.validate_every and self.number < self.updates):
            return math.nan
        self.network.eval()
        validation = float(self.validate(self.network))
        self.network.train()
        if math.isnan(self.best) or validation < self.best:
            self.best, self.validations_without_best = validation, 0
            self.best_weights = deepcopy(self.network.state_dict())
            if self.folder is not None:
                save_network(self.network, self.folder / AGENT, provenance=self._provenance())
        else:
            self.validations_without_best += 1
        return validation

    def _write(self, folder: Path, observation: ObservationArrays) -> None:
        state = {
            "spec": spec_to_dict(self.vec.spec_of_observation),
            "number": self.number,
            "steps": self.steps,
            "validations_without_best": self.validations_without_best,
            "best": self.best,
            "best_weights": self.best_weights,
            "history": [asdict(update) for update in self.history],
            "observation": dict(observation),
            "environment": self.vec.snapshot(),
            "parts": {name: part.state_dict() for name, part in self.parts.items()},
        }
        path = self._checkpoint(folder / LAST_CHECKPOINT_FILE).write(state)
        self.last_checkpoint = f"{path} (update {self.number})"
        if self.best_weights is None:
            save_network(self.network, folder / AGENT, provenance=self._provenance())

    def _checkpoint(self, path: Path) -> Checkpoint:
        return Checkpoint(path, FORMAT, self.identity, may_differ=MAY_DIFFER)

    def _provenance(self) -> dict[str, Any]:
        return {**self.identity, "update": self.number, "steps": self.steps, "validation": self.best}

    def _check_finite(self, losses: Mapping[str, float]) -> None:
        problems = [f"{name} is {value}" for name, value in losses.items() if not math.isfinite(value)]
        weights = self.network.named_parameters()
        if not problems and not torch.stack([p.isfinite().all() for p in self.network.parameters()]).all():
            problems = [f"the weight {name} is not finite" for name, p in weights if not p.isfinite().all()]
        if problems:
            checkpoint = (
                "no checkpoint was written"
                if self.last_checkpoint is None
                else f"the last good checkpoint is {self.last_checkpoint}"
            )
            raise TrainingError(
                f"update {self.number + 1}: {'; '.join(problems)}. {checkpoint}. "
                "Look for NaN in observations and rewards, or lower the learning rate"
            )


def run_training(learner: Learner[Any], options: LearnerOptions) -> TrainingState:
    """Train until all updates are finished, or validation has not improved for `patience` validations."""
    with output_lock(options.get("checkpoint_dir"), inside=True):
        training, resume = TrainingState(learner, options), options.get("resume")
        observation = training.begin(resume)
        if resume is None:
            learner.begin()
        while not training.done:
            observation, metrics = learner.update(observation, training.number)
            training.end_update(observation, metrics, steps=learner.steps)
        return training


def train(make: Callable[[torch.device], Learner[Any]], options: LearnerOptions) -> TrainingResult:
    """Train the learner that `make` creates on the device of the options."""
    with use_device(options.get("device", "cpu"), options.get("threads")) as device:
        return run_training(make(device), options).result()


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
