"""Gymnasium environments: `kilowait/Batch-v0`, `kilowait/Gpu-v0` and `kilowait/Energy-v0`, single and vectorized.

``import kilowait.envs`` registers them; so does the module prefix of ``"kilowait.envs:kilowait/Batch-v0"`` in
``gymnasium.make``. The engine and its compiled kernels are imported when the first environment is created.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from kilowait.envs.registration import ENVIRONMENTS, register

if TYPE_CHECKING:
    from kilowait.envs.custom import Feature, RewardTerm, ShownJobs, StartedJobs

__all__ = ["ENVIRONMENTS", "Feature", "RewardTerm", "ShownJobs", "StartedJobs", "register"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'kilowait.envs' has no attribute {name!r}")
    return getattr(import_module("kilowait.envs.custom"), name)


register()
