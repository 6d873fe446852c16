"""Registration of the environments with Gymnasium; imports no engine code."""

from __future__ import annotations

from kilowait.errors import MissingExtraError

__all__ = ["ENVIRONMENTS", "register"]

ENVIRONMENTS = {
    "kilowait/Batch-v0": ("kilowait.envs.env:BatchEnv", "kilowait.envs.vector_env:BatchVectorEnv"),
    "kilowait/Energy-v0": ("kilowait.envs.power.env:EnergyEnv", "kilowait.envs.power.vector_env:EnergyVectorEnv"),
    "kilowait/Gpu-v0": ("kilowait.envs.gpu.env:GpuEnv", "kilowait.envs.gpu.vector_env:GpuVectorEnv"),
}
"""Environment id to the entry points of the single and of the vector environment."""


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
