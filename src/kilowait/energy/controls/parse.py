"""Parser of the power-control text, such as ``sleep=break-even+dvfs=1.1``.

The text is ``none``, ``all``, or several of these joined by ``+``:

- ``sleep=never``, ``sleep=timeout:SECONDS[:reserve=N]``, ``sleep=break-even``, ``sleep=predictive[:SECONDS]``: idle
  nodes go to sleep after a timeout. ``break-even`` takes the idle time above which sleeping saves energy.
  ``predictive`` takes the same timeout (or the one given), wakes nodes ahead of reservations, and keeps a reserve
  awake: the nodes that jobs are expected to request during one wake-up, by the same hour of the previous seven days.
- ``dvfs=SLOWDOWN[:always]``: each job runs in the DVFS state of least energy among those that make it at most SLOWDOWN
  times as long, unless more nodes are requested than are free. With ``always`` it does so then too.
- ``shift=RULE:SLACK``, ``shift=price:RULE:SLACK``: jobs are shifted to times of low carbon intensity (or price) by a
  rule of `kilowait.energy.load_shifting`, by at most a time span such as 6h, or ``gaia``.
- ``budget=WATTS``, ``budget=80%`` (of full IT power; also 500kW, 1.5MW): IT power never exceeds this power budget. With
  ``budget=100%:70%@8-20`` the second value applies from 8 to 20 o'clock every day (UTC, or the log's own time where it
  has no date). Jobs that run when it falls have, by their estimates, ended or fit into it.

``all`` is sleep=break-even, dvfs=1.1 and shift=carbon_time:6h, as far as the power model and the given signals allow.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from kilowait.energy.load_shifting import GAIA_SLACK_S, SHIFT_RULES
from kilowait.energy.power import PowerModel
from kilowait.errors import InputError, UnknownNameError
from kilowait.units import parse_duration

CONTROL_NAMES = ("sleep", "dvfs", "shift", "budget")
"""Names of the power controls."""
SLEEPS = ("never", "timeout", "break-even", "predictive")
DEFAULT_SLOWDOWN = 1.1
DEFAULT_SHIFT = "carbon_time:6h"
_UNITS = {"mw": 1e6, "kw": 1e3, "w": 1.0}


@dataclass(frozen=True)
class SleepRule:
    """When idle nodes go to sleep."""

    kind: str
    timeout_s: float | None = None
    """None: the group's break-even time."""
    reserve: int = 0
    """Nodes of each group that stay awake."""


@dataclass(frozen=True)
class ShiftRule:
    """Load shifting: signal, rule and maximum delay."""

    signal: str
    policy: str
    slack: str

    @property
    def slack_s(self) -> float | Mapping[float, float]:
        """Maximum delay in seconds, or seconds by run-time estimate."""
        return GAIA_SLACK_S if self.slack == "gaia" else parse_duration(self.slack)


@dataclass(frozen=True)
class PowerBudget:
    """A limit on IT power: watts, or a share of full power."""

    watts: float = math.nan
    share: float = math.nan
    daily: PowerBudget | None = None
    """The budget that applies instead during some hours of every day."""
    hours: tuple[int, int] = (0, 24)
    """First and last hour of `daily`."""

    def of(self, model: PowerModel) -> float:
        """The budget in watts."""
        return self.watts if math.isnan(self.share) else self.share * model.full_it_w()


@dataclass(frozen=True)
class ControlSpec:
    """A parsed power-control text; None is a control that is not used."""

    sleep: SleepRule | None = None
    slowdown: float | None = None
    """DVFS: the maximum run time relative to full speed."""
    always: bool = False
    """Whether jobs are slowed down even when more nodes are requested than are free."""
    shift: ShiftRule | None = None
    budget: PowerBudget | None = None
    everything: bool = False
    """Whether the text says ``all``: every applicable control that is not named takes its default."""

    def resolved(self, model: PowerModel, *, carbon: bool, price: bool) -> ControlSpec:
        """Replace ``all`` by the controls that the power model and the given signals support."""
        if not self.everything:
            return self
        spec = replace(self, everything=False)
        if self.sleep is None and any(group.sleep is not None for group in model.groups):
            spec = replace(spec, sleep=SleepRule("break-even"))
        if self.slowdown is None and any(len(group.levels) > 1 for group in model.groups):
            spec = replace(spec, slowdown=DEFAULT_SLOWDOWN)
        if self.shift is None and (carbon or price):
            spec = replace(spec, shift=_shift(DEFAULT_SHIFT if carbon else f"price:{DEFAULT_SHIFT}"))
        return spec


def parse_controls(text: str) -> ControlSpec:
    """Parse a power-control text and check its names and numbers.

    >>> parse_controls("sleep=timeout:10m:reserve=4+dvfs=1.1").sleep
    SleepRule(kind='timeout', timeout_s=600.0, reserve=4)
    >>> parse_controls("budget=80%").budget.share
    0.8
    """
    if text.strip() in {"none", ""}:
        return ControlSpec()
    settings: dict[str, str] = {}
    everything = False
    for part in text.strip().split("+"):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if name == "all" and not equals:
            everything = True
            continue
        if name not in CONTROL_NAMES:
            raise UnknownNameError("power control", name, ("none", "all", *CONTROL_NAMES))
        if not value:
            raise InputError(f"power control {part!r} has no value; write for example {_EXAMPLES[name]}")
        if name in settings:
            raise InputError(f"power controls {text!r} give {name} twice; give each once")
        settings[name] = value
    slowdown, always = _slowdown(settings["dvfs"]) if "dvfs" in settings else (None, False)
    return ControlSpec(
        _sleep(settings["sleep"]) if "sleep" in settings else None,
        slowdown,
        always,
        _shift(settings["shift"]) if "shift" in settings else None,
        _budget(settings["budget"]) if "budget" in settings else None,
        everything,
    )


def _sleep(value: str) -> SleepRule:
    kind, *settings = value.split(":")
    if kind not in SLEEPS:
        raise UnknownNameError("sleep policy", kind, SLEEPS)
    timeout_s: float | None = None
    reserve = 0
    for setting in settings:
        key, equals, number = setting.partition("=")
        if equals and key == "reserve" and kind == "timeout" and number.isdecimal():
            reserve = int(number)
        elif not equals and timeout_s is None and kind in {"timeout", "predictive"}:
            timeout_s = _span(setting, f"sleep={value}")
        else:
            raise InputError(f"sleep={value}: {setting!r} is not a setting of {kind}; write {_EXAMPLES['sleep']}")
    if kind == "timeout" and timeout_s is None:
        raise InputError(f"sleep={value} has no timeout; write {_EXAMPLES['sleep']}")
    return SleepRule(kind, timeout_s, reserve)


def _slowdown(value: str) -> tuple[float, bool]:
    number, colon, when = value.partition(":")
    try:
        slowdown = float(number)
    except ValueError:
        slowdown = math.nan
    if not (1 <= slowdown < math.inf) or (colon and when != "always"):
        raise InputError(
            f"dvfs={value}: give the maximum slowdown of a job, 1 or more, such as dvfs=1.1; "
            "dvfs=1.1:always slows jobs down even when more nodes are requested than are free"
        )
    return slowdown, bool(colon)


def _shift(value: str) -> ShiftRule:
    signal, rule_text = "carbon", value
    for signal_name in ("carbon", "price"):
        if value.startswith(f"{signal_name}:"):
            signal, rule_text = signal_name, value[len(signal_name) + 1 :]
    rule, colon, slack = rule_text.rpartition(":")
    if not colon:
        raise InputError(f"shift={value} has no maximum delay; write {_EXAMPLES['shift']}")
    if rule.partition(":")[0] not in SHIFT_RULES:
        raise UnknownNameError("load-shifting rule", rule.partition(":")[0], SHIFT_RULES)
    if slack != "gaia":
        _span(slack, f"shift={value}")
    return ShiftRule(signal, rule, slack)


def _budget(value: str) -> PowerBudget:
    default, colon, other = value.partition(":")
    if not colon:
        return _power(value)
    limit, at, hours = other.partition("@")
    first, dash, last = hours.partition("-")
    if not (
        at and dash and first.isdecimal() and last.isdecimal() and int(first) < int(last) <= 24 and hours != "0-24"
    ):
        raise InputError(
            f"budget={value}: the hours are {hours!r}; write the first and last hour, such as budget=100%:70%@8-20"
        )
    return replace(_power(default), daily=_power(limit), hours=(int(first), int(last)))


def _power(value: str) -> PowerBudget:
    plain = value.replace(" ", "").replace("_", "").lower()
    unit = next((name for name in ("%", *_UNITS) if plain.endswith(name)), "")
    try:
        number = float(plain.removesuffix(unit))
    except ValueError:
        number = math.nan
    if not (0 < number < math.inf):
        raise InputError(
            f"budget={value} is not a power; write watts, 500kW, 1.5MW or a share of full power such as 80%"
        )
    return PowerBudget(share=number / 100) if unit == "%" else PowerBudget(watts=number * _UNITS.get(unit, 1.0))


def _span(text: str, where: str) -> float:
    try:
        seconds = parse_duration(text)
    except InputError as problem:
        raise InputError(f"{where}: {problem}") from None
    if seconds < 0:
        raise InputError(f"{where}: {text} is below 0; give a span of 0 or more")
    return seconds


_EXAMPLES = {
    "sleep": "sleep=break-even or sleep=timeout:600:reserve=8",
    "dvfs": "dvfs=1.1",
    "shift": "shift=lowest_window:6h or shift=price:carbon_time:gaia",
    "budget": "budget=500kW or budget=80%",
}
