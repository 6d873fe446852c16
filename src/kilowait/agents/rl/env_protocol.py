"""Interface of the vector environments that the algorithms train on; those of `kilowait.envs` implement it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from kilowait.agents.networks.spec import ObservationSpecProtocol
from kilowait.errors import InputError

__all__ = ["ObservationArrays", "VectorEnvProtocol", "check_vector", "final_observation"]

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
