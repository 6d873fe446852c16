"""The clock seen through Gymnasium: `kilowait/Batch-v0`, `kilowait/Gpu-v0` and `kilowait/Energy-v0`, one
copy or many at once.

``import kilowait`` and ``import gymnasium``, in any order, are enough for ``gymnasium.make`` to know the names.
"""

from __future__ import annotations

from kilowait.errors import MissingExtraError

try:
    from gymnasium.envs.registration import register as make_known
    from gymnasium.envs.registration import registry
except ImportError:
    raise MissingExtraError("gymnasium", "learn") from None

__all__ = ["NAMES", "register"]

NAMES = {
    "kilowait/Batch-v0": ("kilowait.envs.env:BatchEnv", "kilowait.envs.vector_env:BatchVectorEnv"),
    "kilowait/Energy-v0": (
        "kilowait.envs.power.env:EnergyEnv",
        "kilowait.envs.power.vector_env:EnergyVectorEnv",
    ),
    "kilowait/Gpu-v0": ("kilowait.envs.gpu.env:GpuEnv", "kilowait.envs.gpu.vector_env:GpuVectorEnv"),
}
"""Name to (one copy, many copies)."""


def register() -> None:
    """Make the names known to Gymnasium."""
    for name, (one, many) in NAMES.items():
        if name not in registry:
            make_known(name, entry_point=one, vector_entry_point=many)


register()
