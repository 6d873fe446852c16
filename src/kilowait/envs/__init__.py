"""Gymnasium environments: `kilowait/Batch-v0`, `kilowait/Gpu-v0` and `kilowait/Energy-v0`, single and vectorized.

``import kilowait.envs`` registers them; so does the module prefix of ``"kilowait.envs:kilowait/Batch-v0"`` in
``gymnasium.make``. The engine and its compiled kernels are imported when the first environment is created.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from kilowait.errors import MissingExtraError

if TYPE_CHECKING:
    from kilowait.envs.batch_env import DecisionSettings, ObservationPolicy
    from kilowait.envs.custom_functions import Feature, RewardTerm, ShownJobs, StartedJobs

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

ENVIRONMENTS = {
    "kilowait/Batch-v0": ("kilowait.envs.batch_env:BatchEnv", "kilowait.envs.batch_env:BatchVectorEnv"),
    "kilowait/Energy-v0": ("kilowait.envs.energy_env:EnergyEnv", "kilowait.envs.energy_env:EnergyVectorEnv"),
    "kilowait/Gpu-v0": ("kilowait.envs.gpu_env:GpuEnv", "kilowait.envs.gpu_env:GpuVectorEnv"),
}
"""Environment id to the entry points of the single and of the vector environment."""

_MODULES = {"DecisionSettings": "batch_env", "ObservationPolicy": "batch_env"}
"""Modules of the names that are not in `custom_functions`."""


def register() -> None:
    """Register the environments with Gymnasium, unless they are registered already."""
    try:
        from gymnasium.envs.registration import register as register_with_gymnasium
        from gymnasium.envs.registration import registry
    except ImportError:
        raise MissingExtraError("gymnasium", "learn") from None
    for name, (single, vector) in ENVIRONMENTS.items():
        if name not in registry:
            register_with_gymnasium(name, entry_point=single, vector_entry_point=vector)


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'kilowait.envs' has no attribute {name!r}")
    return getattr(import_module(f"kilowait.envs.{_MODULES.get(name, 'custom_functions')}"), name)


register()
