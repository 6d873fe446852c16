"""Align signals (carbon intensity, price, weather) to the time of a job log, and check unit, sign and span."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime

import numpy as np

from kilowait.energy.power import Cooling
from kilowait.energy.signals import Weather
from kilowait.energy.signals.units import INTENSITY_UNIT, intensity_factor, price_factor, unix_seconds
from kilowait.errors import InputError
from kilowait.jobs import JobTable
from kilowait.series import Series

_CELSIUS = ("°C", "C", "")


@dataclass(frozen=True)
class ClockOrigin:
    """Unix time of the log's second 0; None if the log has no date.

    >>> jobs = JobTable(job_id=[1], submit_s=[90], runtime_s=[9], nodes=[1])
    >>> ClockOrigin.of(jobs, "2022-01-01 00:01:30").unix_zero_s, ClockOrigin.of(jobs).unix_zero_s
    (1640995200.0, None)
    """

    unix_zero_s: float | None
    note: str = ""

    @classmethod
    def of(cls, jobs: JobTable, start: str | None = None) -> ClockOrigin:
        """From `start`, the date of the first submission (UTC unless it has an offset), or ``meta["unix_start_s"]``."""
        if start is None:
            zero = jobs.meta.get("unix_start_s")
            zone = str(jobs.meta.get("time_zone", ""))
            note = f"times of the log taken as {zone}" if "assumed" in zone else ""
            return cls(None if zero is None else float(zero), note)
        if not len(jobs):
            raise InputError(f"start={start!r} is the date of the first submission, but the log has no jobs")
        try:
            moment = float(unix_seconds([start], "UTC")[0])
        except InputError as problem:
            raise InputError(f"start={start!r}: {problem}") from None
        date = f"{datetime.fromtimestamp(moment, UTC):%Y-%m-%d %H:%M} UTC"
        return cls(moment - float(jobs["submit_s"].min()), f"first submission set to {date}")

    def offset_s(self, series: Series, what: str) -> float:
        """Seconds by which to shift a series to the log's time; 0 for a series without a date."""
        if series.unix_zero_s is None:
            return 0.0
        if self.unix_zero_s is None:
            raise InputError(
                f"{what} has dates and the log has none; give the date of the first submission, such as "
                "start='2022-01-01'"
            )
        return series.unix_zero_s - self.unix_zero_s


@dataclass(frozen=True, eq=False)
class ExternalSignals:
    """Carbon intensity, price and weather for the accounts of a run, as they were read.

    >>> ExternalSignals(carbon=Series.constant(500, "g/kWh")).carbon.unit
    'g/kWh'
    """

    carbon: Series | None = None
    """Carbon intensity, in g/kWh or a unit that can be converted."""
    price: Series | None = None
    """Electricity price per kWh or MWh."""
    weather: Weather | None = None
    """For cooling models that depend on it."""
    start: str | None = None
    """Date of the first submission ("2022-01-01", UTC); None: the log's own ``unix_start_s``. Signals without dates are
    in the log's time already."""
    repeat_signals: bool = False
    """Whether a signal that does not cover the horizon is repeated (`Series.wrapped`); otherwise it is an error."""


@dataclass(frozen=True)
class Signals:
    """Signals in the log's time over the whole horizon; None if not given or not needed."""

    carbon: Series | None = None
    """g/kWh."""
    price: Series | None = None
    """`currency` per MWh."""
    currency: str = ""
    temperature: Series | None = None
    """°C."""
    wet_bulb: Series | None = None
    """°C."""
    descriptions: dict[str, str] = field(default_factory=dict)
    """One line per signal, printed with every result."""
    notes: tuple[str, ...] = ()

    def all(self) -> list[Series]:
        """The signals that are not None."""
        listed = (self.carbon, self.price, self.temperature, self.wet_bulb)
        return [series for series in listed if series is not None]


def align_signals(
    given: ExternalSignals, dated: ClockOrigin, horizon_s: tuple[float, float], cooling: Cooling
) -> Signals:
    """The signals in the log's time; an error if one has a wrong unit, sign or span."""
    carbon, price, weather = given.carbon, given.price, given.weather
    words: dict[str, str] = {}
    currency = ""

    def covering(series: Series, what: str) -> Series:
        shifted = series.shifted(dated.offset_s(series, what))
        if given.repeat_signals and not shifted.covers(*horizon_s):
            return shifted.wrapped(*horizon_s)
        shifted.require(*horizon_s)
        return shifted

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
        notes.append(f"the cooling model ({type(cooling).__name__}) does not depend on the weather")
    elif weather is not None:
        if weather.temperature.unit not in _CELSIUS:
            raise InputError(f"the temperature is in {weather.temperature.unit}; give it in °C")
        weather = Weather(*(covering(part, "the weather") for part in (weather.temperature, weather.humidity)))
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
