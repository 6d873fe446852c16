"""Power controls as text, GPU power caps among them, and agents that use power controls.

On GPU clusters ``gpu-cap=60%`` is the only power control.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from kilowait.cluster import Cluster
from kilowait.energy.controls import parse_controls
from kilowait.errors import InputError

if TYPE_CHECKING:
    from kilowait.experiments.power import PowerContext
    from kilowait.experiments.settings import PowerSettings

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


def power_controls_or_caps(power_controls: str, gpu_power_cap: str | None) -> str:
    """Comma-separated sets of power controls: the given ones, or GPU power caps, which GPU clusters use instead.

    >>> power_controls_or_caps("none", "none,80%")
    'none,gpu-cap=80%'
    """
    if gpu_power_cap is None:
        return power_controls
    if power_controls != "none":
        raise InputError(
            f"--power-controls is {power_controls!r} and --gpu-power-cap is {gpu_power_cap}; no cluster supports both: "
            "leave one out"
        )
    return ",".join(parse_gpu_power_caps(gpu_power_cap))


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


def check_has_power_model(power_controls: str, power: PowerSettings | None) -> None:
    """Raise if power controls are given without a power model."""
    if power is None and power_controls.strip() != "none":
        subject = (
            f"power controls {power_controls!r} need"
            if gpu_cap_share(power_controls) is None
            else f"{power_controls} needs"
        )
        raise InputError(f"{subject} a power model; name one with --power")


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


POWER_TERMS = ("energy", "co2", "cost")
"""Reward terms that need a power model."""


@runtime_checkable
class PowerAgent(Protocol):
    """An agent that uses power controls, and needs a power model to run."""

    power_controls: str

    def bind_power(self, power: Any) -> Any:
        """The agent with this power model."""


def power_config(power_context: PowerContext, power_controls: str) -> Any:
    """Power settings of `kilowait/Energy-v0`. Load shifting is left out, as the agent decides when jobs start."""
    from kilowait.envs.power_setup import PowerConfig

    controls = [part for part in power_controls.split("+") if not part.strip().startswith("shift")]
    return PowerConfig(
        power_context.model,
        power_context.carbon,
        power_context.price,
        "+".join(controls) or "none",
        power_context.forecast,
        power_context.utilization,
        repeat_signals=power_context.repeat_signals,
    )


def bind_agent_power(policy: Any, power_context: PowerContext | None, power_controls: str) -> Any:
    """The policy of a run: an agent that controls power is bound to the power model; others are unchanged."""
    if not isinstance(policy, PowerAgent):
        return policy
    if power_context is None:
        raise InputError(
            "this agent was trained on kilowait/Energy-v0: it needs a power model and power controls; give --power and "
            f"--power-controls {policy.power_controls}"
        )
    if power_controls.strip() == "none":
        raise InputError(
            "this agent uses power controls, but none are given; use those of its training: "
            f"--power-controls {policy.power_controls}"
        )
    return policy.bind_power(power_config(power_context, power_controls))


def check_reward(terms: Mapping[str, float], has_power: bool) -> None:
    """Raise an error if a reward term needs a power model and there is none."""
    needing_power = [name for name in terms if name in POWER_TERMS]
    if needing_power and not has_power:
        raise InputError(
            f"the term {needing_power[0]!r} needs a power model; name one with --power, or use --power auto"
        )


def power_objective(reward: Mapping[str, float] | None) -> str:
    """The power term of a reward with the largest weight; energy if it has none.

    >>> power_objective({"slowdown": 1.0, "co2": 0.5})
    'co2'
    """
    named = {name: weight for name, weight in (reward or {}).items() if name in POWER_TERMS}
    return max(named, key=lambda name: abs(named[name])) if named else "energy"
