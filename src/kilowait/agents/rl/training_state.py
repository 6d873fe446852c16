"""State of a training run: validation, checkpoints, history and progress after every update.

The training loop itself belongs to the algorithm. A folder contains two files: ``last.safetensors``, with everything
needed to resume exactly (weights, optimizer, random states, environments, replay buffer), and ``agent.pt``, the best
validated network, or the last one without validation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import asdict, replace
from os import PathLike
from pathlib import Path
from time import perf_counter
from typing import Any, Protocol

import torch

from kilowait.agents.networks.heads import ActorCritic, DuelingQ
from kilowait.agents.networks.spec import spec_to_dict
from kilowait.agents.rl.agent_file import check_spec, save_network
from kilowait.agents.rl.env_protocol import ObservationArrays, VectorEnvProtocol, check_vector
from kilowait.agents.rl.state_checks import StateMismatch, check_like, check_part, check_progress
from kilowait.agents.rl.state_file import read_state, write_state
from kilowait.agents.rl.training_result import TrainingError, TrainingResult, Update
from kilowait.errors import InputError

__all__ = ["LAST_CHECKPOINT_FILE", "TrainingState", "Progress", "Validate", "WarmStart"]

FORMAT = "kilowait checkpoint"
LAST_CHECKPOINT_FILE = "last.safetensors"
AGENT = "agent.pt"
MAX_CHECKPOINT_INTERVAL_S = 120.0
"""Maximum time between checkpoints, seconds, independent of the settings."""

Progress = Callable[[Update], None]
Validate = Callable[[Any], float]
"""Validation metric of a network; smaller is better."""


class Stateful(Protocol):
    """A part of the training that has a state: a network, an optimizer, a generator, a buffer …"""

    def state_dict(self) -> Mapping[str, Any]:
        """The state."""

    def load_state_dict(self, state: Any, /) -> Any:
        """Restore a state."""


class WarmStart(Protocol):
    """Changes a new network before its first update; `agents.rl.behavior_cloning.BehaviorCloning` is one."""

    @property
    def settings(self) -> Any:
        """A dataclass: a training is resumed only with equal settings."""

    def __call__(self, network: Any, algorithm: str, seed: int) -> None:
        """Change the weights."""


class TrainingState:
    """State of one training run.

    Args:
        algorithm: its name.
        vec: the environments.
        settings: the algorithm's dataclass; has total_timesteps, validate_every, patience and checkpoint_every.
        seed: of the training.
        updates: total number of updates.
        network: the network that is trained and validated.
        parts: everything else that has a state, by name.
        folder: where files are written; None: none are.
        validate: evaluates the network.
        progress: called with every update.
        warm: changes a new network before the first update.
    """

    def __init__(
        self,
        algorithm: str,
        vec: VectorEnvProtocol,
        settings: Any,
        *,
        seed: int,
        updates: int,
        network: ActorCritic | DuelingQ,
        parts: Mapping[str, Stateful],
        folder: str | PathLike[str] | None,
        validate: Validate | None,
        progress: Progress | None,
        warm: WarmStart | None = None,
    ) -> None:
        check_vector(vec, checkpoints=folder is not None)
        self.vec, self.settings, self.updates, self.network = vec, settings, updates, network
        self.parts: dict[str, Stateful] = {"network": network, **parts}
        self.folder = None if folder is None else Path(folder)
        self.validate, self.progress, self.warm = validate, progress, warm
        self.identity: dict[str, Any] = {
            "algorithm": algorithm,
            "seed": seed,
            "settings": asdict(settings),
            "envs": vec.num_envs,
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
        state = read_state(path, FORMAT)
        try:
            observation = self._restore(state, path)
        except StateMismatch as problem:
            raise InputError(f"{path}: {problem}; take an earlier one, or train again") from None
        self.last_checkpoint = f"{path} (update {self.number})"
        self._since = perf_counter()
        return observation

    def _restore(self, state: dict[str, Any], path: Path) -> ObservationArrays:
        """Restore a state once all of it is checked; returns the observation."""
        check_progress(state, str(path))
        check_spec(state["spec"], self.vec.spec_of_observation, path)
        self._check_identity(state["identity"], path)
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

    def end_update(
        self,
        observation: ObservationArrays,
        *,
        steps: int,
        episodes: Mapping[str, float],
        losses: Mapping[str, float],
        entropy: float = math.nan,
        kl: float = math.nan,
    ) -> None:
        """Finish an update: validate, record, write a checkpoint. Raises TrainingError if a number is not finite."""
        self._check_finite(losses)
        self.number += 1
        self.steps += steps
        current = perf_counter()
        rate, self._since = steps / max(current - self._since, 1e-9), current
        validation = self._validate()
        record = Update(
            self.number, self.updates, self.steps, episodes["return"], episodes["metric"],
            dict(losses), entropy, kl, validation, self.best, rate,
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
            "identity": self.identity,
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
        path = write_state(folder / LAST_CHECKPOINT_FILE, FORMAT, state)
        self.last_checkpoint = f"{path} (update {self.number})"
        if self.best_weights is None:
            save_network(self.network, folder / AGENT, provenance=self._provenance())

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

    def _check_identity(self, saved: Mapping[str, Any], path: Path) -> None:
        current, saved_values = dict(self.identity), dict(saved)
        current |= {f"setting {name}": value for name, value in current.pop("settings").items()}
        saved_values |= {f"setting {name}": value for name, value in saved_values.pop("settings").items()}
        for name, value in current.items():
            # A longer training or another patience can be resumed; any other difference is another training.
            may_differ = name in ("setting total_timesteps", "setting patience", "setting checkpoint_every")
            if not may_differ and saved_values.get(name) != value:
                raise InputError(
                    f"{path} was trained with {name} {saved_values.get(name)!r}, and this is {value!r}; "
                    "resume with the same, or start again"
                )
