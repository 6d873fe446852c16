"""GPU power caps as text: on GPU clusters ``gpu-cap=60%`` is the only power control."""

from __future__ import annotations

from kilowait.cluster import Cluster
from kilowait.energy.controls import parse_controls
from kilowait.errors import InputError

__all__ = [
    "DEFAULT_GPU_CAPS",
    "gpu_cap_share",
    "gpu_cap_description",
    "parse_gpu_power_caps",
    "check_power_controls",
    "check_controls_supported",
]

DEFAULT_GPU_CAPS = (0.9, 0.8, 0.7, 0.6, 0.5)
"""Caps that are compared by default, as fractions of the GPU power limit."""
_CAP = "gpu-cap="


def parse_gpu_power_caps(text: str) -> list[str]:
    """The power controls of a list of caps, fractions of the power limit (TDP) of the job's GPU; none: no cap.

    >>> parse_gpu_power_caps("none,0.8,60%")
    ['none', 'gpu-cap=80%', 'gpu-cap=60%']
    """
    controls = [_cap_text(part.strip()) for part in text.split(",") if part.strip()]
    if not controls:
        raise InputError("--gpu-power-cap is empty; write a fraction of the GPU power limit such as 60% or 0.6")
    return list(dict.fromkeys(controls))


def gpu_cap_share(power_controls: str) -> float | None:
    """The GPU power cap of a text, as a fraction; None: the text is not a GPU power cap.

    >>> gpu_cap_share("gpu-cap=60%"), gpu_cap_share("sleep=break-even")
    (0.6, None)
    """
    text = power_controls.strip()
    return _share(text[len(_CAP) :]) if text.startswith(_CAP) else None


def gpu_cap_description(share: float) -> str:
    """The cap as text for the user.

    >>> gpu_cap_description(0.6)
    'GPUs are capped at 60 % of their power limit'
    """
    return f"GPUs are capped at {100 * share:g} % of their power limit"


def check_power_controls(power_controls: str) -> None:
    """Raise unless batch or GPU clusters support these power controls."""
    if gpu_cap_share(power_controls) is None:
        parse_controls(power_controls)


def check_controls_supported(power_controls: str, cluster: Cluster) -> None:
    """Raise unless this cluster supports these power controls."""
    is_gpu_cap = gpu_cap_share(power_controls) is not None
    if is_gpu_cap and not cluster.node_level:
        raise InputError(
            f"--gpu-power-cap is for GPU clusters; {cluster.name!r} has whole nodes, where power caps "
            "are DVFS states: take --power-controls dvfs=1.1, or a preset such as gpu-mixed"
        )
    if cluster.node_level and not is_gpu_cap and power_controls.strip() != "none":
        raise InputError(
            f"power controls {power_controls!r} are for batch clusters, which have node sleep and DVFS; cap GPUs with "
            "--gpu-power-cap 60%, or leave --power-controls out"
        )


def _cap_text(text: str) -> str:
    return text if text == "none" else f"{_CAP}{100 * _share(text):.10g}%"


def _share(text: str) -> float:
    number, factor = (text[:-1], 0.01) if text.endswith("%") else (text, 1.0)
    try:
        share = round(float(number) * factor, 12)
    except ValueError:
        share = 0.0
    if not 0 < share <= 1:
        raise InputError(
            f"--gpu-power-cap is {text!r}; write a fraction of the GPU power limit (TDP) above 0 and up to 1, such as "
            "60% or 0.6; watts are not accepted, because GPU types differ"
        )
    return share
