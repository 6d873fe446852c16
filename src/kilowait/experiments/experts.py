"""Whom a network may imitate before it learns by itself: a rule, or look-ahead."""

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

__all__ = ["lessons_by", "warm_start"]


class _Watched:
    """Copies of a batch system, and look-ahead over them; of width 1 that is its base rule."""

    def __init__(self, text: str, vec: Any, cluster: Cluster) -> None:
        from kilowait.envs.expert import LookAheadExpert
        from kilowait.envs.lookahead import WORD, LookAhead

        looking = text.partition(":")[0] == WORD
        lookahead = LookAhead.from_text(text) if looking else LookAhead(resolve(text), width=1)
        self.vec = vec
        self._teacher = LookAheadExpert(lookahead, vec.board, vec.jobs, cluster)

    def choose(self) -> npt.NDArray[np.int64]:
        """As the teacher would."""
        return self._teacher.choose()

    def close(self) -> None:
        """Let go of the copies."""
        self._teacher.close()
        self.vec.close()


def lessons_by(text: str, vec: Any, cluster: Cluster) -> Any:
    """A teacher beside these copies: a rule's name, or look-ahead as the command line writes it."""
    from kilowait.envs.gpu.expert import GpuRuleExpert
    from kilowait.envs.gpu.vector_env import GpuVectorEnv
    from kilowait.envs.vector_env import BatchVectorEnv

    if isinstance(vec, GpuVectorEnv):
        if text.startswith("lookahead"):
            raise InputError(
                f"the teacher is {text!r}, and look-ahead rehearses no placed nodes; take a rule such as srtf"
            )
        return GpuRuleExpert(resolve(text), vec)
    if type(vec) is not BatchVectorEnv:
        raise InputError(
            f"the teacher is {text!r}, and in {type(vec).__name__} nobody can teach yet; leave --expert out"
        )
    return _Watched(text, vec, cluster)


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
    """A warm start of so many choices by a teacher, in new environments; `settings` are those of what follows."""
    from kilowait.agents.rl.behavior_cloning import BehaviorCloning, ImitationSettings

    first = envs()
    lessons_by(text, first, cluster).close()  # a teacher that cannot teach is told before anything is begun
    return BehaviorCloning(
        ImitationSettings(text, steps, gamma=settings.gamma, normalize_rewards=settings.normalize_rewards),
        lambda: lessons_by(text, envs(), cluster),
        Path(folder),
        resume,
        progress,
    )
