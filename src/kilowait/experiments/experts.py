"""Experts for behavior cloning: priority policies, or look-ahead."""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from kilowait.cluster import Cluster
from kilowait.errors import InputError
from kilowait.policies import resolve

if TYPE_CHECKING:
    from kilowait.agents.rl.behavior_cloning import BehaviorCloning

__all__ = ["make_expert_env", "warm_start"]


class _LookAheadExpertEnv:
    """A vector environment with a look-ahead expert; a priority policy is look-ahead of width 1."""

    def __init__(self, text: str, vec: Any, cluster: Cluster) -> None:
        from kilowait.envs.lookahead import LOOKAHEAD, LookAhead
        from kilowait.envs.lookahead_expert import LookAheadExpert

        is_lookahead = text.partition(":")[0] == LOOKAHEAD
        lookahead = LookAhead.from_text(text) if is_lookahead else LookAhead(resolve(text), width=1)
        self.vec = vec
        self._expert = LookAheadExpert(lookahead, vec.simulator, vec.jobs, cluster)

    def choose(self) -> npt.NDArray[np.int64]:
        """The expert's actions."""
        return self._expert.choose()

    def close(self) -> None:
        """Close the environments."""
        self._expert.close()
        self.vec.close()


def make_expert_env(text: str, vec: Any, cluster: Cluster) -> Any:
    """An expert for these environments: a policy's name, or look-ahead in the syntax of the command line."""
    from kilowait.envs.gpu.policy_expert import GpuPolicyExpert
    from kilowait.envs.gpu.vector_env import GpuVectorEnv
    from kilowait.envs.vector_env import BatchVectorEnv

    if isinstance(vec, GpuVectorEnv):
        if text.startswith("lookahead"):
            raise InputError(
                f"the expert is {text!r}, but look-ahead does not support GPU clusters; use a policy such as srtf"
            )
        return GpuPolicyExpert(resolve(text), vec)
    if type(vec) is not BatchVectorEnv:
        raise InputError(
            f"the expert is {text!r}, but {type(vec).__name__} does not support experts; leave --expert out"
        )
    return _LookAheadExpertEnv(text, vec, cluster)


def warm_start(
    text: str,
    steps: int,
    envs: Callable[[], Any],
    cluster: Cluster,
    settings: Any,
    *,
    folder: str | PathLike[str],
    resume: bool,
    progress: Callable[[Any], None] | None,
) -> BehaviorCloning:
    """Behavior cloning from `steps` expert decisions in new environments; `settings` are those of the RL algorithm."""
    from kilowait.agents.rl.behavior_cloning import BehaviorCloning, BehaviorCloningSettings

    first = envs()
    make_expert_env(text, first, cluster).close()  # raise errors of the expert before anything is written
    return BehaviorCloning(
        BehaviorCloningSettings(text, steps, gamma=settings.gamma, normalize_rewards=settings.normalize_rewards),
        lambda: make_expert_env(text, envs(), cluster),
        Path(folder),
        resume,
        progress,
    )
