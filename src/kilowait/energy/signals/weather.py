"""Weather: temperature and humidity from Open-Meteo JSON or EPW files, and the wet-bulb temperature, UTC."""

from __future__ import annotations

import calendar
import math
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from os import PathLike
from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.energy.signals.signal_file import SignalFile, as_number, open_signal
from kilowait.energy.signals.units import unix_seconds
from kilowait.errors import InputError
from kilowait.series import Floats, Gaps, Series

TYPICAL_YEAR = 2023
"""Default calendar year of a typical meteorological year: 365 days, starting on a Sunday like most EPW files."""

_EPW_HEADER_LINES = 8
_EPW_DRY_BULB, _EPW_HUMIDITY = 6, 8
_EPW_MISSING_C, _EPW_MISSING_PERCENT = 99.9, 999.0


@dataclass(frozen=True, eq=False)
class Weather:
    """Outdoor temperature and humidity over time."""

    temperature: Series
    """Dry-bulb temperature, °C."""
    humidity: Series
    """Relative humidity, %."""

    @cached_property
    def wet_bulb(self) -> Series:
        """Wet-bulb temperature, °C, by Stull's formula at sea level; never above the dry bulb."""
        edge = np.union1d(self.temperature.edge_s, self.humidity.edge_s)
        start = max(self.temperature.start_s, self.humidity.start_s)
        edge = edge[(edge >= start) & (edge <= min(self.temperature.end_s, self.humidity.end_s))]
        value = wet_bulb_c(self.temperature.at(edge[:-1]), self.humidity.at(edge[:-1]))
        meta = {**self.temperature.meta, "name": "wet bulb"}
        return replace(self.temperature, edge_s=edge, value=value, meta=meta)

    def shifted(self, by_s: float) -> Weather:
        """Shifted in time; see `Series.shifted`."""
        return Weather(self.temperature.shifted(by_s), self.humidity.shifted(by_s))

    def wrapped(self, start_s: float, end_s: float) -> Weather:
        """Repeated beyond its own span; see `Series.wrapped`."""
        return Weather(self.temperature.wrapped(start_s, end_s), self.humidity.wrapped(start_s, end_s))

    def require(self, start_s: float, end_s: float, what: str = "the run") -> None:
        """An error unless it covers the span; see `Series.require`."""
        self.temperature.require(start_s, end_s, what)
        self.humidity.require(start_s, end_s, what)

    def describe(self) -> str:
        """One line that is printed with every result."""
        humid = float(self.humidity.mean(self.humidity.start_s, self.humidity.end_s))
        return f"{self.temperature.describe()}, mean humidity {humid:.3g} %"


def wet_bulb_c(temperature_c: npt.ArrayLike, humidity_percent: npt.ArrayLike) -> Floats:
    """Wet-bulb temperature (°C) at sea level from dry-bulb temperature (°C) and relative humidity (%), by Stull (2011).

    The fit is accurate to about 1 K from 5 to 99 % and from -20 to 50 °C. In moist air it slightly exceeds the dry-bulb
    temperature, which is returned instead.

    >>> round(float(wet_bulb_c(20, 50)), 1)
    13.7
    """
    t, rh = np.asarray(temperature_c, np.float64), np.asarray(humidity_percent, np.float64)
    wet = (
        t * np.arctan(0.151977 * np.sqrt(rh + 8.313659))
        + np.arctan(t + rh)
        - np.arctan(rh - 1.676331)
        + 0.00391838 * rh**1.5 * np.arctan(0.023101 * rh)
        - 4.686035
    )
    return np.asarray(np.minimum(wet, t))


def read_weather(
    path: str | PathLike[str], *, year: int | None = None, gaps: Gaps = "error", longest_s: float | None = None
) -> Weather:
    """Weather from Open-Meteo JSON or an EPW file, UTC; the format is detected by content.

    Open-Meteo: hourly values hold from their hour on; times are converted to UTC by the file's `utc_offset_seconds`,
    which applies to the whole file. EPW: hour 1 ends at 01:00, in local standard time. A typical meteorological year
    combines months of different years; it is mapped to `year`, or to `TYPICAL_YEAR`. A file of a single year keeps its
    year unless `year` is given.
    """
    file = open_signal(path)
    with file.named():
        if file.is_json():
            time, temperature, humidity, facts = _open_meteo(file)
        elif file.text.startswith("LOCATION,"):
            time, temperature, humidity, facts = _epw(file, year)
        else:
            raise InputError(f"this is neither Open-Meteo JSON nor EPW; it starts with {file.text[:40]!r}")
        wrong = (humidity < 0) | (humidity > 110)
        if wrong.any():
            raise InputError(f"relative humidity of {humidity[wrong][0]:g} %; it must lie between 0 and 100")
        origin = {**facts, **file.origin()}

        def series(name: str, value: Floats, unit: str) -> Series:
            return Series.from_samples(
                time, value, unit, {"name": name, **origin}, gaps=gaps, longest_s=longest_s, unix_zero_s=0.0
            )

        return Weather(
            series("temperature", temperature, "°C"), series("relative humidity", np.minimum(humidity, 100.0), "%")
        )


def _open_meteo(file: SignalFile) -> tuple[Floats, Floats, Floats, dict[str, Any]]:
    content = file.json()
    hourly = content.get("hourly") if isinstance(content, dict) else None
    if not isinstance(hourly, dict) or "time" not in hourly:
        raise InputError(
            "this JSON has no hourly values; request hourly temperature_2m and relative_humidity_2m from Open-Meteo"
        )
    units = content.get("hourly_units")
    units = units if isinstance(units, dict) else {}

    def listed(name: str) -> list[Any]:
        if not isinstance(hourly[name], list):
            raise InputError(f"hourly {name} is {hourly[name]!r:.40}, not a list; download the file again")
        return list(hourly[name])

    def column(names: tuple[str, ...], unit: str) -> Floats:
        name = next((name for name in names if name in hourly), None)
        if name is None:
            raise InputError(f"there is no hourly {names[0]}; the file has {', '.join(hourly)}")
        if units.get(name, unit) != unit:
            raise InputError(f"{name} is in {units[name]}, not {unit}; request metric units from Open-Meteo")
        try:
            return np.array([as_number(value) for value in listed(name)], np.float64)
        except ValueError as problem:
            raise InputError(f"{name}: {problem}; correct the file") from None

    temperature = column(("temperature_2m",), "°C")
    humidity = column(("relative_humidity_2m", "relativehumidity_2m"), "%")
    try:
        offset = as_number(content.get("utc_offset_seconds"))
    except ValueError:
        offset = math.nan
    if not math.isfinite(offset):
        raise InputError("there is no utc_offset_seconds, so the times cannot be converted to UTC; add it (0 for UTC)")
    time = unix_seconds([str(word) for word in listed("time")], "UTC")
    if units.get("time") != "unixtime":  # Unix times are UTC whatever the offset.
        time = time - offset
    facts = {"location": f"{content.get('latitude', '?')}, {content.get('longitude', '?')}"}
    return time, temperature, humidity, {**facts, "format": "open-meteo", "utc_offset_s": offset}


def _whole(cell: str) -> int:
    """A whole number, which some EPW writers write with a decimal point.

    >>> _whole("24"), _whole("1.0")
    (24, 1)
    """
    number = float(cell)
    if number != int(number):
        raise ValueError(f"the date or hour {cell!r:.40} is not a whole number")
    return int(number)


def _epw(file: SignalFile, year: int | None) -> tuple[Floats, Floats, Floats, dict[str, Any]]:
    lines = file.text.splitlines()
    place = lines[0].split(",")
    rows = [line.split(",") for line in lines[_EPW_HEADER_LINES:] if line.strip()]
    try:
        offset_s = float(place[8]) * 3600
        when = np.array([[_whole(cell) for cell in row[:4]] for row in rows]).reshape(-1, 4)
        values = np.array([[float(row[_EPW_DRY_BULB]), float(row[_EPW_HUMIDITY])] for row in rows])
    except (ValueError, IndexError, OverflowError) as problem:
        raise InputError(f"this EPW file is invalid ({problem}); download the file again") from None
    if len(rows) == 0:
        raise InputError("this EPW file has a header but no hours; download the file again")
    years = np.unique(when[:, 0])
    no_leap_day = len(rows) == 8760 and not ((when[:, 1] == 2) & (when[:, 2] == 29)).any()
    own = len(years) == 1 and not (no_leap_day and calendar.isleap(int(years[0])))
    laid_on = year if year is not None else int(years[0]) if own else TYPICAL_YEAR
    if no_leap_day and calendar.isleap(laid_on):
        raise InputError(
            f"{laid_on} is a leap year, but the file has no 29 February; choose another year, and repeat the signal"
        )
    try:
        starts = [
            datetime(laid_on, month, day, hour - 1, tzinfo=UTC).timestamp() for _, month, day, hour in when.tolist()
        ]
    except (ValueError, OverflowError) as problem:
        raise InputError(
            f"an hour of this EPW file does not exist in {laid_on}: {problem}; give another year"
        ) from None
    dry, humid = values[:, 0], values[:, 1]
    facts: dict[str, Any] = {"location": " ".join(place[1:4]), "format": "epw", "year": laid_on}
    if len(years) > 1 or laid_on != years[0]:
        source = f"{years[0]} to {years[-1]}" if len(years) > 1 else f"{years[0]}"
        facts["note"] = f"months of {source} mapped to {laid_on}"
    return (
        np.array(starts) - offset_s,
        np.where(dry >= _EPW_MISSING_C, np.nan, dry),
        np.where(humid >= _EPW_MISSING_PERCENT, np.nan, humid),
        facts,
    )
