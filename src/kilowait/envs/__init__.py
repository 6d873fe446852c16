"""Gymnasium environments: `kilowait/Batch-v0`, `kilowait/Gpu-v0` and `kilowait/Energy-v0`, single and vectorized.

``import kilowait.envs`` registers them; so does the module prefix of ``"kilowait.envs:kilowait/Batch-v0"`` in
``gymnasium.make``. The engine and its compiled kernels are imported when the first environment is created.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from kilowait.envs.registration import ENVIRONMENTS, register

if TYPE_CHECKING:
    from kilowait.envs.batched_sim import DecisionSettings
    from kilowait.envs.custom_functions import Feature, RewardTerm, ShownJobs, StartedJobs
    from kilowait.envs.rollout import ObservationPolicy

__all__ = [
    "ENVIRONMENTS",
    "DecisionSettings",
    "Feature",
    "ObservationPolicy",
    "RewardTerm",
    "ShownJobs",
    "StartedJobs",
    "register",
]

_MODULES = {"DecisionSettings": "batched_sim", "ObservationPolicy": "rollout"}
"""Modules of the names that are not in `custom_functions`."""


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'kilowait.envs' has no attribute {name!r}")
    return getattr(import_module(f"kilowait.envs.{_MODULES.get(name, 'custom_functions')}"), name)


register()
