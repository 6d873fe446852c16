"""GPU power caps in words: on placed nodes, which have no other lever, ``gpu-cap=60%`` stands where levers do."""

from __future__ import annotations

from kilowait.cluster import Cluster
from kilowait.energy.controls import parse_controls
from kilowait.errors import InputError

__all__ = [
    "CAPS",
    "cap_of",
    "cap_description",
    "parse_gpu_power_caps",
    "check_power_controls",
    "check_controls_supported",
]

CAPS = (0.9, 0.8, 0.7, 0.6, 0.5)
"""Tried where nobody says which."""
_CAP = "gpu-cap="


def parse_gpu_power_caps(text: str) -> list[str]:
    """Sets of levers of a list of caps: shares of the limit (TDP) of whatever GPU a job is on; none: no cap.

    >>> parse_gpu_power_caps("none,0.8,60%")
    ['none', 'gpu-cap=80%', 'gpu-cap=60%']
    """
    found = [_cap_text(part.strip()) for part in text.split(",") if part.strip()]
    if not found:
        raise InputError("--gpu-power-cap is empty; write a share of the GPUs' limit such as 60% or 0.6")
    return list(dict.fromkeys(found))


def cap_of(power_controls: str) -> float | None:
    """The cap that levers are, as a share; None: they are none.

    >>> cap_of("gpu-cap=60%"), cap_of("sleep=break-even")
    (0.6, None)
    """
    text = power_controls.strip()
    return _share(text[len(_CAP) :]) if text.startswith(_CAP) else None


def cap_description(share: float) -> str:
    """For people.

    >>> cap_words(0.6)
    'GPUs are held to 60 % of their limit'
    """
    return f"GPUs are held to {100 * share:g} % of their limit"


def check_power_controls(power_controls: str) -> None:
    """Raise unless some machine knows these levers."""
    if cap_of(power_controls) is None:
        parse_controls(power_controls)


def check_controls_supported(power_controls: str, cluster: Cluster) -> None:
    """Raise unless this machine knows these levers."""
    capped = cap_of(power_controls) is not None
    if capped and not cluster.node_level:
        raise InputError(
            f"--gpu-power-cap is for GPU clusters; {cluster.name!r} has whole nodes, where power caps "
            "are DVFS states: take --power-controls dvfs=1.1, or a preset such as gpu-mixed"
        )
    if cluster.node_level and not capped and power_controls.strip() != "none":
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
            f"--gpu-power-cap is {text!r}; write a share of the GPUs' limit (TDP) above 0 and up to 1, such as 60% "
            "or 0.6: types differ in watts"
        )
    return share
