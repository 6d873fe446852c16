"""Groups of options that several commands share, as dataclasses, and the scenario that the options describe.

A command takes a group of options as one parameter.

The fields of a group have the names of the settings that they fill (`Scenario`, `GpuOptions`, `PowerSettings` in
`kilowait.experiments`), which own the defaults. The command line repeats the defaults, as it must not import these
modules before a command runs; a test compares them.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, get_type_hints

import typer

from kilowait.cli import options

if TYPE_CHECKING:
    from kilowait.experiments.scenario import Scenario

__all__ = [
    "AgentSignalOptions",
    "GpuSchedulingOptions",
    "LogFormatOptions",
    "SchedulingOptions",
    "SignalOptions",
    "LogOptions",
    "power_controls_or_caps",
    "scenario_from_options",
    "with_groups",
]


@dataclass(frozen=True)
class LogFormatOptions:
    """How a job log is read."""

    columns: options.Columns = None
    format: options.Format = None
    unpack_limit: options.UnpackLimit = None
    strict: options.Strict = False


@dataclass(frozen=True)
class LogOptions:
    """Which jobs of the log are simulated, and with which arrivals."""

    on_oversized: options.OnOversized = "error"
    ignore_dependencies: options.IgnoreDependencies = False
    load: options.Load = None
    jobs: options.Jobs = None


@dataclass(frozen=True)
class SchedulingOptions:
    """Scheduling of the simulated machine, besides the policy and the kind of backfilling."""

    backfill_order: options.BackfillOrder = None
    at_limit: options.AtLimit = "extend"
    overrun: options.Overrun = None
    schedule_per: options.SchedulePer = "instant"


@dataclass(frozen=True)
class GpuSchedulingOptions:
    """Scheduling on GPU clusters: GPU types, preemption, checkpoints, migration, rounds."""

    gpu_type_order: options.GpuTypeOrder = None
    preempt: options.Preempt = None
    migrate: options.Migrate = None
    checkpoint_interval: options.CheckpointInterval = None
    checkpoint_load_time: options.CheckpointLoadTime = None
    checkpoint_write_time: options.CheckpointWriteTime = None
    preempt_grace: options.PreemptGrace = None
    preempt_min_runtime: options.PreemptMinRuntime = None
    round_interval: options.RoundInterval = None
    gpu_speeds: options.GpuSpeeds = "auto"


@dataclass(frozen=True)
class AgentSignalOptions:
    """Signals and assumptions of energy accounting for agents, which see no weather."""

    carbon: options.Carbon = None
    price: options.Price = None
    carbon_scope: options.CarbonScope = "life-cycle"
    cooling: options.CoolingWithoutWeather = None
    utilization: options.Utilization = None
    forecast: options.Forecast = "perfect"
    log_start: options.LogStart = None
    repeat_signals: options.RepeatSignals = False


@dataclass(frozen=True)
class SignalOptions(AgentSignalOptions):
    """Signals and assumptions of energy accounting."""

    weather: options.Weather = None
    cooling: options.Cooling = None


def with_groups(command: Callable[..., None]) -> Callable[..., None]:
    """The command with every parameter that is a group of options replaced by the options of the group.

    >>> def show(*, log: LogFormatOptions) -> None:
    ...     print(log.format, log.strict)
    >>> list(inspect.signature(with_groups(show)).parameters)
    ['columns', 'format', 'unpack_limit', 'strict']
    >>> with_groups(show)(columns=None, format="swf", unpack_limit=None, strict=True)
    swf True
    """
    hints = get_type_hints(command, include_extras=True)
    parameters: list[inspect.Parameter] = []
    groups: dict[str, Any] = {}
    for name, parameter in inspect.signature(command).parameters.items():
        if not dataclasses.is_dataclass(hints[name]):
            parameters.append(parameter.replace(annotation=hints[name]))
            continue
        groups[name] = hints[name]
        field_hints = get_type_hints(hints[name], include_extras=True)
        parameters += [
            parameter.replace(name=field.name, default=field.default, annotation=field_hints[field.name])
            for field in dataclasses.fields(hints[name])
        ]

    @wraps(command)
    def flat(**values: Any) -> None:
        for name, group in groups.items():
            values[name] = group(**{field.name: values.pop(field.name) for field in dataclasses.fields(group)})
        command(**values)

    del flat.__wrapped__
    flat.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    flat.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return flat


def power_controls_or_caps(power_controls: str, gpu_power_cap: str | None) -> str:
    """Comma-separated sets of power controls: the given ones, or GPU power caps, which GPU clusters use instead."""
    from kilowait.errors import InputError
    from kilowait.experiments.gpu_power_cap import parse_gpu_power_caps

    if gpu_power_cap is None:
        return power_controls
    if power_controls != "none":
        raise InputError(
            f"--power-controls is {power_controls!r} and --gpu-power-cap is {gpu_power_cap}; no cluster supports both: "
            "leave one out"
        )
    return ",".join(parse_gpu_power_caps(gpu_power_cap))


def scenario_from_options(context: typer.Context, trace: str, **fields: Any) -> Scenario:
    """The scenario that the options of the running command describe; `fields` are set directly."""
    from kilowait.experiments.gpu_options import GpuOptions
    from kilowait.experiments.power import PowerSettings
    from kilowait.experiments.scenario import Scenario

    def explicit_fields(dataclass: Any, *others: str) -> dict[str, Any]:
        """The fields of a dataclass that the command has options for, except `others`."""
        names = {field.name for field in dataclasses.fields(dataclass)}.difference(others)
        return {name: value for name, value in context.params.items() if name in names}

    given = context.params
    scenario = explicit_fields(Scenario, "trace", "policy", "backfill", "power", "power_controls")
    scenario["dependencies"] = not given.get("ignore_dependencies", False)
    scenario["gpu"] = GpuOptions(**explicit_fields(GpuOptions))
    power = (
        PowerSettings.from_options(given["power"], **explicit_fields(PowerSettings, "power"))
        if "power" in given
        else None
    )
    return Scenario(trace=trace, **{**scenario, "power": power, **fields})
