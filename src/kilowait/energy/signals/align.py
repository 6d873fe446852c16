"""Signals on a log's own clock: checked for unit, sign and span."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime

import numpy as np

from kilowait.energy.power import Cooling
from kilowait.energy.signals import Weather
from kilowait.energy.signals.readers.timestamps import unix_seconds
from kilowait.energy.signals.readers.units import INTENSITY_UNIT, intensity_factor, price_factor
from kilowait.errors import InputError
from kilowait.jobs import JobTable
from kilowait.series import Series

__all__ = ["ClockOrigin", "Signals", "signals_for"]

_CELSIUS = ("°C", "C", "")


@dataclass(frozen=True)
class ClockOrigin:
    """Which moment a log's second 0 is; None where nobody said.

    >>> jobs = JobTable(job_id=[1], submit_s=[90], runtime_s=[9], nodes=[1])
    >>> ClockOrigin.of(jobs, "2022-01-01 00:01:30").unix_zero_s, ClockOrigin.of(jobs).unix_zero_s
    (1640995200.0, None)
    """

    unix_zero_s: float | None
    note: str = ""

    @classmethod
    def of(cls, jobs: JobTable, start: str | None = None) -> ClockOrigin:
        """By `start`, the moment of the first submission (UTC unless it has an offset), where it is given; else by the
        log's own ``meta["unix_start_s"]``.
        """
        if start is None:
            zero = jobs.meta.get("unix_start_s")
            zone = str(jobs.meta.get("time_zone", ""))
            note = f"times of the log taken as {zone}" if "assumed" in zone else ""
            return cls(None if zero is None else float(zero), note)
        if not len(jobs):
            raise InputError(f"start={start!r} is that of the first submission, and the log has no jobs")
        try:
            moment = float(unix_seconds([start], "UTC")[0])
        except InputError as problem:
            raise InputError(f"start={start!r}: {problem}") from None
        said = f"{datetime.fromtimestamp(moment, UTC):%Y-%m-%d %H:%M} UTC"
        return cls(moment - float(jobs["submit_s"].min()), f"the first submission laid on {said}")

    def by_s(self, series: Series, what: str) -> float:
        """Seconds to shift a series by; 0 for one without a date, which is on the log's clock already."""
        if series.unix_zero_s is None:
            return 0.0
        if self.unix_zero_s is None:
            raise InputError(
                f"{what} has dates and the log has none; say when its first job was submitted, such as "
                "start='2022-01-01'"
            )
        return series.unix_zero_s - self.unix_zero_s


@dataclass(frozen=True)
class Signals:
    """What is outside, on the log's clock, over all of the horizon; None where not given or of no matter."""

    carbon: Series | None = None
    """g/kWh."""
    price: Series | None = None
    """`currency` per MWh."""
    currency: str = ""
    temperature: Series | None = None
    """°C."""
    wet_bulb: Series | None = None
    """°C."""
    words: dict[str, str] = field(default_factory=dict)
    """One line for each, to be printed with every result."""
    notes: tuple[str, ...] = ()

    def all(self) -> list[Series]:
        """Those there are."""
        listed = (self.carbon, self.price, self.temperature, self.wet_bulb)
        return [series for series in listed if series is not None]


def signals_for(
    dated: ClockOrigin,
    horizon_s: tuple[float, float],
    cooling: Cooling,
    carbon: Series | None,
    price: Series | None,
    weather: Weather | None,
    wrap: bool,
) -> Signals:
    """The signals on the log's clock, or an error that says what is wrong with one."""
    words: dict[str, str] = {}
    currency = ""

    def covering(series: Series, what: str) -> Series:
        found = series.shifted(dated.by_s(series, what))
        if wrap and not found.covers(*horizon_s):
            return found.wrapped(*horizon_s)
        found.require(*horizon_s)
        return found

    if carbon is not None:
        carbon = covering(_intensity(carbon), "the carbon intensity")
        words["carbon"] = carbon.describe()
    if price is not None:
        factor, currency = _price_unit(price)
        price = covering(price.scaled(factor, f"{currency}/MWh"), "the price")
        words["price"] = price.describe()
    temperature = wet_bulb = None
    notes = []
    if dated.note and any(signal is not None for signal in (carbon, price, weather)):
        notes.append(dated.note)
    if weather is None and cooling.needs:
        raise InputError(
            f"the cooling ({type(cooling).__name__}) needs the weather ({', '.join(cooling.needs)}); give "
            "weather=read_weather(...) or choose another with model.with_cooling('pue:1.2')"
        )
    if weather is not None and not cooling.needs:
        notes.append(f"the weather does not matter to this cooling ({type(cooling).__name__})")
    elif weather is not None:
        if weather.temperature.unit not in _CELSIUS:
            raise InputError(f"the temperature is in {weather.temperature.unit}; give it in °C")
        weather = Weather(
            *(covering(part, "the weather") for part in (weather.temperature, weather.humidity))
        )
        temperature = weather.temperature
        wet_bulb = weather.wet_bulb if "wet_bulb" in cooling.needs else None
        words["weather"] = weather.describe()
    return Signals(carbon, price, currency, temperature, wet_bulb, words, tuple(notes))


def _intensity(carbon: Series) -> Series:
    try:
        factor = intensity_factor(carbon.unit)
    except InputError as problem:
        raise InputError(f"carbon: {problem}") from None
    low = int(np.argmin(carbon.value))
    if carbon.value[low] < 0:
        raise InputError(
            f"the carbon intensity is {carbon.value[low]:g} {carbon.unit} at {carbon.moment(carbon.edge_s[low])}; it "
            "must be 0 or more"
        )
    return carbon if carbon.unit == INTENSITY_UNIT else carbon.scaled(factor, INTENSITY_UNIT)


def _price_unit(price: Series) -> tuple[float, str]:
    try:
        return price_factor(price.unit)
    except InputError as problem:
        raise InputError(f"price: {problem}") from None
