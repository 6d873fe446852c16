"""Levers as people write them, taken apart.

``none``; ``all``; or several of these, joined by ``+``:

- ``sleep=never``, ``sleep=timeout:SECONDS[:reserve=N]``, ``sleep=break-even``, ``sleep=predictive[:SECONDS]``: idle
  nodes fall asleep after that time. Break-even is the idle time from which sleeping pays. Predictive waits as long (or
  as told), wakes nodes ahead of reservations, and keeps as many awake as are asked for while a node wakes, by the same
  hour of the seven days before.
- ``dvfs=SLOWDOWN[:always]``: each job runs at its level of least energy among those at most so many times as long,
  unless more nodes are asked for than are free; always: then too.
- ``shift=RULE:SLACK``, ``shift=price:RULE:SLACK``: jobs wait for clean (or cheap) power, by a rule of
  `kilowait.energy.load_shifting` and for at most a span such as 6h, or ``gaia``.
- ``budget=WATTS``, ``budget=80%`` (of full IT power; also 500kW, 1.5MW): IT power never goes above it. With
  ``budget=100%:70%@8-20`` the second holds from 8 to 20 o'clock every day, UTC, or on the log's clock where it has no
  date; jobs whose estimates hold have ended, or fit, when it falls.

``all`` is sleep=break-even, dvfs=1.1 and shift=carbon_time:6h, as far as the machine and the signals given allow.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from kilowait.energy.load_shifting import GAIA_SLACK_S, RULES
from kilowait.energy.power import PowerModel
from kilowait.errors import InputError, UnknownNameError
from kilowait.units import parse_span

__all__ = ["LEVERS", "PowerBudget", "ShiftRule", "ControlSpec", "SleepRule", "parse_levers"]

LEVERS = ("sleep", "levels", "hold", "budget")
SLEEPS = ("never", "timeout", "break-even", "predictive")
ALL_SLOWDOWN = 1.1
ALL_HOLD = "carbon_time:6h"
_UNITS = {"mw": 1e6, "kw": 1e3, "w": 1.0}


@dataclass(frozen=True)
class SleepRule:
    """When nodes sleep."""

    kind: str
    timeout_s: float | None = None
    """None: the group's break-even time."""
    reserve: int = 0


@dataclass(frozen=True)
class ShiftRule:
    """What jobs are held back for."""

    signal: str
    rule: str
    slack: str

    @property
    def slack_s(self) -> float | Mapping[float, float]:
        """Seconds, or seconds by estimate."""
        return GAIA_SLACK_S if self.slack == "gaia" else parse_span(self.slack)


@dataclass(frozen=True)
class PowerBudget:
    """Of IT power: watts, or a share of full power."""

    watts: float = math.nan
    share: float = math.nan
    daily: PowerBudget | None = None
    """What holds instead during some hours of every day."""
    hours: tuple[int, int] = (0, 24)
    """From and to, of `daily`."""

    def of(self, model: PowerModel) -> float:
        """In watts."""
        return self.watts if math.isnan(self.share) else self.share * model.full_it_w()


@dataclass(frozen=True)
class ControlSpec:
    """A text taken apart; None is a lever that is not pulled."""

    sleep: SleepRule | None = None
    slowdown: float | None = None
    always: bool = False
    """Whether jobs are slowed down even where more nodes are asked for than are free."""
    hold: ShiftRule | None = None
    budget: PowerBudget | None = None
    everything: bool = False
    """Whatever can be pulled and is not named."""

    def resolved(self, model: PowerModel, *, carbon: bool, price: bool) -> ControlSpec:
        """With ``all`` spelt out for a machine and the signals that are given."""
        if not self.everything:
            return self
        found = replace(self, everything=False)
        if self.sleep is None and any(group.sleep is not None for group in model.groups):
            found = replace(found, sleep=SleepRule("break-even"))
        if self.slowdown is None and any(len(group.levels) > 1 for group in model.groups):
            found = replace(found, slowdown=ALL_SLOWDOWN)
        if self.hold is None and (carbon or price):
            found = replace(found, hold=_hold(ALL_HOLD if carbon else f"price:{ALL_HOLD}"))
        return found


def parse_levers(text: str) -> ControlSpec:
    """The levers of a text; names and numbers are checked.

    >>> parse_levers("sleep=timeout:10m:reserve=4+dvfs=1.1").sleep
    SleepRule(kind='timeout', timeout_s=600.0, reserve=4)
    >>> parse_levers("budget=80%").budget.share
    0.8
    """
    if text.strip() in {"none", ""}:
        return ControlSpec()
    given: dict[str, str] = {}
    everything = False
    for part in text.strip().split("+"):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if name == "all" and not equals:
            everything = True
            continue
        if name not in LEVERS:
            raise UnknownNameError("lever", name, ("none", "all", *LEVERS))
        if not value:
            raise InputError(f"lever {part!r} lacks its setting; write for instance {_EXAMPLES[name]}")
        if name in given:
            raise InputError(f"levers {text!r} name {name} twice; name each once")
        given[name] = value
    slowdown, always = _slowdown(given["levels"]) if "levels" in given else (None, False)
    return ControlSpec(
        _sleep(given["sleep"]) if "sleep" in given else None,
        slowdown,
        always,
        _hold(given["hold"]) if "hold" in given else None,
        _budget(given["budget"]) if "budget" in given else None,
        everything,
    )


def _sleep(value: str) -> SleepRule:
    kind, *settings = value.split(":")
    if kind not in SLEEPS:
        raise UnknownNameError("way to sleep", kind, SLEEPS)
    timeout_s: float | None = None
    reserve = 0
    for setting in settings:
        key, equals, number = setting.partition("=")
        if equals and key == "reserve" and kind == "timeout" and number.isdecimal():
            reserve = int(number)
        elif not equals and timeout_s is None and kind in {"timeout", "predictive"}:
            timeout_s = _span(setting, f"sleep={value}")
        else:
            raise InputError(
                f"sleep={value}: {setting!r} is not a setting of {kind}; write {_EXAMPLES['sleep']}"
            )
    if kind == "timeout" and timeout_s is None:
        raise InputError(f"sleep={value} lacks its time; write {_EXAMPLES['sleep']}")
    return SleepRule(kind, timeout_s, reserve)


def _slowdown(value: str) -> tuple[float, bool]:
    number, colon, when = value.partition(":")
    try:
        slowdown = float(number)
    except ValueError:
        slowdown = math.nan
    if not (1 <= slowdown < math.inf) or (colon and when != "always"):
        raise InputError(
            f"dvfs={value}: give the most times as long a job may run, 1 or more, such as dvfs=1.1; "
            "dvfs=1.1:always slows jobs down even where more nodes are asked for than are free"
        )
    return slowdown, bool(colon)


def _hold(value: str) -> ShiftRule:
    signal, rest = "carbon", value
    for named in ("carbon", "price"):
        if value.startswith(f"{named}:"):
            signal, rest = named, value[len(named) + 1 :]
    rule, colon, slack = rest.rpartition(":")
    if not colon:
        raise InputError(f"shift={value} does not say for how long at most; write {_EXAMPLES['hold']}")
    if rule.partition(":")[0] not in RULES:
        raise UnknownNameError("rule for holding jobs", rule.partition(":")[0], RULES)
    if slack != "gaia":
        _span(slack, f"shift={value}")
    return ShiftRule(signal, rule, slack)


def _budget(value: str) -> PowerBudget:
    usual, colon, other = value.partition(":")
    if not colon:
        return _power(value)
    limit, at, hours = other.partition("@")
    first, dash, last = hours.partition("-")
    if not (
        at
        and dash
        and first.isdecimal()
        and last.isdecimal()
        and int(first) < int(last) <= 24
        and hours != "0-24"
    ):
        raise InputError(
            f"budget={value}: the hours are {hours!r}; write for instance budget=100%:70%@8-20, from hour to hour"
        )
    return replace(_power(usual), daily=_power(limit), hours=(int(first), int(last)))


def _power(value: str) -> PowerBudget:
    plain = value.replace(" ", "").replace("_", "").lower()
    unit = next((name for name in ("%", *_UNITS) if plain.endswith(name)), "")
    try:
        number = float(plain.removesuffix(unit))
    except ValueError:
        number = math.nan
    if not (0 < number < math.inf):
        raise InputError(
            f"budget={value} is no power; write watts, 500kW, 1.5MW or a share of full power such as 80%"
        )
    return (
        PowerBudget(share=number / 100) if unit == "%" else PowerBudget(watts=number * _UNITS.get(unit, 1.0))
    )


def _span(text: str, where: str) -> float:
    try:
        seconds = parse_span(text)
    except InputError as problem:
        raise InputError(f"{where}: {problem}") from None
    if seconds < 0:
        raise InputError(f"{where}: {text} is below 0; give a span of 0 or more")
    return seconds


_EXAMPLES = {
    "sleep": "sleep=break-even or sleep=timeout:600:reserve=8",
    "levels": "dvfs=1.1",
    "hold": "shift=lowest_window:6h or shift=price:carbon_time:gaia",
    "budget": "budget=500kW or budget=80%",
}
