"""Interface of the vector environments that the algorithms train on (those of `kilowait.envs` implement it), statistics
of their finished episodes, and the normalization of rewards.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from kilowait.agents.networks.spec import ObservationSpecProtocol
from kilowait.errors import InputError

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

ObservationArrays = Mapping[str, npt.NDArray[Any]]
"""Arrays of all environments, by the names in the observation spec; new arrays every step."""
StepResult = tuple[
    ObservationArrays, npt.NDArray[np.float64], npt.NDArray[np.bool_], npt.NDArray[np.bool_], dict[str, Any]
]


class VectorEnvProtocol(Protocol):
    """A `gymnasium.vector.VectorEnv` with same-step autoreset, snapshot and restore."""

    num_envs: int

    @property
    def spec_of_observation(self) -> ObservationSpecProtocol:
        """Its observation and actions."""

    def reset(self, *, seed: int | None = None) -> tuple[ObservationArrays, dict[str, Any]]:
        """Start new episodes."""

    def step(self, actions: npt.NDArray[np.int64]) -> StepResult:
        """Observations, rewards, terminated, truncated, infos."""

    def snapshot(self) -> dict[str, npt.NDArray[Any]]:
        """The complete state."""

    def restore(self, snapshot: Mapping[str, npt.NDArray[Any]], /) -> object:
        """Restore a snapshot."""


def check_vector(vec: VectorEnvProtocol, *, checkpoints: bool) -> None:
    """Raise an error for an environment on which training would be wrong without an error.

    Args:
        vec: the environment.
        checkpoints: whether checkpoints are to be written, which needs snapshots.
    """
    metadata: Mapping[str, Any] = getattr(vec, "metadata", None) or {}
    mode = metadata.get("autoreset_mode")
    name = getattr(mode, "name", mode)
    if name is not None and str(name).upper() != "SAME_STEP":
        raise InputError(
            f"the environment resets by {name}; learning needs AutoresetMode.SAME_STEP, as otherwise the first step of "
            "every episode would be learned from although it does nothing"
        )
    if checkpoints and not (hasattr(vec, "snapshot") and hasattr(vec, "restore")):
        raise InputError(
            f"{type(vec).__name__} has no snapshot() and restore(), so training cannot be resumed exactly; "
            "train without a checkpoint folder, or use an environment of kilowait.envs"
        )


def final_observation(infos: Mapping[str, Any], which: npt.NDArray[np.intp]) -> dict[str, npt.NDArray[Any]]:
    """Last observations of the truncated environments in `which`, one row each, from ``infos["final_obs"]``.

    Gymnasium's own vector environments give an array of dicts, others a dict of arrays; both are accepted.

    >>> infos = {"final_obs": np.array([None, {"summary": np.array([3.0])}])}
    >>> final_observation(infos, np.array([1]))["summary"].tolist()
    [[3.0]]
    """
    final = infos.get("final_obs")
    if final is None:
        raise InputError(
            "an episode was truncated and infos has no 'final_obs'; "
            "the environment must give the last observation, or end the episode (terminated)"
        )
    if isinstance(final, Mapping):
        return {name: np.asarray(rows)[which] for name, rows in final.items()}
    observations = [final[index] for index in which]
    return {name: np.stack([observation[name] for observation in observations]) for name in observations[0]}


class EpisodeStatistics:
    """Returns, objectives and costs of the episodes that ended since the last call of `means`.

    >>> episodes = EpisodeStatistics(2)
    >>> ended = {"r": np.array([-3.0, 0.0]), "metric": np.array([7.0, 0.0])}
    >>> episodes.step({"episode": ended, "_episode": np.array([True, False])}, np.array([True, False]))
    >>> episodes.means()["return"], episodes.means()["return"]
    (-3.0, nan)
    """

    def __init__(self, envs: int, cost: str | None = None) -> None:
        self.cost = cost
        """Name in infos of a cost that is summed over each episode."""
        self.running = np.zeros(envs)
        self._ended: dict[str, list[Floats]] = {"return": [], "metric": [], "cost": []}

    def step(self, infos: Mapping[str, Any], done: Flags) -> None:
        """Add a step; `done` marks the environments whose episode ended."""
        if self.cost is not None:
            self.running += step_cost(infos, self.cost)
            if done.any():
                self._ended["cost"].append(self.running[done])
                self.running[done] = 0.0
        if done.any() and "episode" in infos:
            for name, key in (("return", "r"), ("metric", "metric")):
                if key in infos["episode"]:
                    self._ended[name].append(np.asarray(infos["episode"][key], np.float64)[infos["_episode"]])

    def means(self) -> dict[str, float]:
        """By name, over the episodes since the last call; NaN where there are none."""
        means = {}
        for name, values_list in self._ended.items():
            values = np.concatenate(values_list) if values_list else np.empty(0)
            means[name] = float(values.mean()) if len(values) else float("nan")
            values_list.clear()
        return means

    def state_dict(self) -> dict[str, Any]:
        """Costs of the running episodes; finished ones are read by `means` before a checkpoint is written."""
        return {"running": self.running}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state."""
        self.running = np.array(state["running"])


def step_cost(infos: Mapping[str, Any], name: str) -> Floats:
    """(B,) the cost of a step, from infos."""
    if name not in infos:
        raise InputError(
            f"infos has no cost {name!r}; this environment gives {', '.join(sorted(map(str, infos))) or 'nothing'}"
        )
    return np.asarray(infos[name], np.float64)


class ReturnScale:
    """Running standard deviation of discounted returns; rewards are divided by it, so that values are about 1.

    >>> scale = ReturnScale(4, gamma=0.0)
    >>> for reward in (0.0, 10.0):
    ...     scale.step(np.full(4, reward), np.zeros(4, bool))
    >>> scale.divisor
    5.0
    """

    def __init__(self, envs: int, gamma: float) -> None:
        self.discount = gamma
        self.running = np.zeros(envs)
        self.count, self.mean, self.squares = 0.0, 0.0, 0.0

    def step(self, rewards: Floats, done: Flags) -> None:
        """Add the rewards of a step of all environments."""
        self.running = self.running * self.discount + rewards
        count, mean = float(len(rewards)), float(self.running.mean())
        squares = float(((self.running - mean) ** 2).sum())
        difference, total = mean - self.mean, self.count + count
        self.mean += difference * count / total
        self.squares += squares + difference * difference * self.count * count / total
        self.count = total
        self.running[done] = 0.0

    @property
    def divisor(self) -> float:
        """The standard deviation; 1 while all returns are equal."""
        if not self.count:
            return 1.0
        deviation = float(np.sqrt(self.squares / self.count))
        return deviation if deviation > 1e-8 else 1.0

    def state_dict(self) -> dict[str, Any]:
        """The complete state."""
        return dict(vars(self))

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state."""
        vars(self).update(state)
        self.running = np.array(self.running)
