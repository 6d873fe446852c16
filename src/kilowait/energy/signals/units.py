"""Units and times in signal files: units found in column headers, conversion factors, and timestamps as Unix seconds.

A time whose zone is unknown is an error.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt

from kilowait.errors import InputError

INTENSITY_UNIT = "g/kWh"
POUND_G = 453.59237

_GRAMS = {"g": 1.0, "kg": 1e3, "t": 1e6, "lb": POUND_G, "lbs": POUND_G}
_KWH = {"kwh": 1.0, "mwh": 1e3}
_MASS = re.compile(
    r"(?<![a-z])(kg|g|t|lbs?)[\s_]*(?:co[2₂]?[\s_-]*(?:e|eq|eqv|equiv\w*)?\.?)?[\s_]*(?:/|per)[\s_]*(kwh|mwh)(?![a-z])",
    re.IGNORECASE,
)
_SIGNS = {"$": "USD", "€": "EUR", "£": "GBP", "US$": "USD"}
_PRICE = re.compile(r"(US\$|[$€£]|[A-Z]{3})\s*(?:/|per|_per_)\s*(kwh|mwh)(?![a-z])", re.IGNORECASE)


def find_intensity_unit(words: str) -> str | None:
    """The unit of carbon intensity in a header; None if there is none.

    >>> [find_intensity_unit(words) for words in ("Carbon Intensity gCO₂eq/kWh (LCA)", "lbs_co2_per_mwh", "MOER")]
    ['g/kWh', 'lb/MWh', None]
    """
    found = _MASS.search(words)
    if found is None:
        return None
    mass = found[1].lower().replace("lbs", "lb")
    return f"{mass}/{'kWh' if found[2].lower() == 'kwh' else 'MWh'}"


def intensity_factor(unit: str) -> float:
    """The factor from this unit to g/kWh.

    >>> intensity_factor("lb/MWh"), intensity_factor("kgCO2/kWh")
    (0.45359237, 1000.0)
    """
    found = _MASS.fullmatch(unit.strip())
    if found is None:
        raise InputError(
            f"unknown unit of carbon intensity {unit!r}; known are g, kg, t and lb of CO2 per kWh or MWh, such as "
            "g/kWh or lb/MWh"
        )
    return _GRAMS[found[1].lower()] / _KWH[found[2].lower()]


def find_price_unit(words: str) -> str | None:
    """The unit of a price in a header; None if there is none.

    >>> find_price_unit("Price (USD/MWh)"), find_price_unit("day-ahead €/kWh"), find_price_unit("price")
    ('USD/MWh', 'EUR/kWh', None)
    """
    found = _PRICE.search(words)
    if found is None:
        return None
    currency = _SIGNS.get(found[1].upper(), found[1].upper())
    return f"{currency}/{'kWh' if found[2].lower() == 'kwh' else 'MWh'}"


def price_factor(unit: str) -> tuple[float, str]:
    """The factor from this price unit to per MWh, and the currency.

    >>> price_factor("EUR/kWh"), price_factor("$/MWh")
    ((1000.0, 'EUR'), (1.0, 'USD'))
    """
    named = find_price_unit(unit)
    if named is None or _PRICE.fullmatch(unit.strip()) is None:
        raise InputError(f"unknown unit of price {unit!r}; write a currency per kWh or MWh, such as EUR/MWh or $/kWh")
    currency, energy = named.split("/")
    return (1e3 if energy == "kWh" else 1.0), currency


def canonical_unit(unit: str) -> tuple[float, str]:
    """The factor to the unit that kilowait uses internally (g/kWh, currency per MWh), and that unit.

    >>> canonical_unit("lb/MWh"), canonical_unit("EUR/kWh")
    ((0.45359237, 'g/kWh'), (1000.0, 'EUR/MWh'))
    """
    if find_intensity_unit(unit) is not None:
        return intensity_factor(unit), INTENSITY_UNIT
    if find_price_unit(unit) is not None:
        factor, currency = price_factor(unit)
        return factor, f"{currency}/MWh"
    raise InputError(f"unknown unit {unit!r}; known are for example g/kWh, lb/MWh, EUR/MWh and $/kWh")


# -- times -----------------------------------------------------------------------------------------


_OFFSET = re.compile(r"([+-])(\d\d):?(\d\d)")
_NUMBER = re.compile(r"-?\d+(\.\d*)?")
_LATEST_S = 2**33  # The year 2242; larger numbers are not Unix seconds.


def time_zone(name: str) -> tzinfo:
    """A time zone by name (``Europe/Berlin``), as an offset (``+01:00``) or ``UTC``.

    >>> time_zone("+05:30").utcoffset(None).total_seconds()
    19800.0
    """
    if name.upper() in ("UTC", "Z", "GMT"):
        return UTC
    match = _OFFSET.fullmatch(name.strip())
    if match is not None and int(match[2]) < 24 and int(match[3]) < 60:
        offset = timedelta(hours=int(match[2]), minutes=int(match[3]))
        return timezone(offset if match[1] == "+" else -offset)
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise InputError(
            f"unknown time zone {name!r}; write UTC, a name such as Europe/Berlin, or an offset such as +01:00"
        ) from None


def unix_seconds(
    words: Sequence[str], zone: str | None, *, line: Sequence[int] | None = None
) -> npt.NDArray[np.float64]:
    """Unix seconds of ISO 8601 times, or of numbers that are Unix seconds already.

    Times with an offset are converted. Times without one are in `zone`, and an error if that is None. In a zone with
    daylight saving time, an hour that does not exist or is ambiguous is an error.

    >>> unix_seconds(["2022-01-01 00:00", "2022-01-01T01:00"], "UTC").tolist()
    [1640995200.0, 1640998800.0]
    >>> unix_seconds(["2022-01-01T01:00+01:00"], None).tolist(), unix_seconds(["60"], None).tolist()
    ([1640995200.0], [60.0])
    """
    if words and all(_NUMBER.fullmatch(word) for word in words):
        seconds = np.array([float(word) for word in words])
        if abs(seconds).max() > _LATEST_S:
            raise InputError(
                f"the file has the time {words[int(abs(seconds).argmax())]}, too large for Unix seconds; divide "
                "milliseconds by 1000"
            )
        return seconds
    lines = range(1, len(words) + 1) if line is None else line
    read = [_moment(word, at) for word, at in zip(words, lines, strict=True)]
    naive = [at for at, moment in enumerate(read) if moment.tzinfo is None]
    if naive and len(naive) < len(read):
        raise InputError(
            f"the file mixes times with and without an offset (line {lines[naive[0]]}: {words[naive[0]]!r}); "
            "write all of them with their offset, or all in one zone"
        )
    if naive:
        if zone is None:
            raise InputError(
                f"the file does not state the time zone of its times ({words[0]!r}); give zone='UTC', or a name such "
                "as zone='Europe/Berlin'"
            )
        local = time_zone(zone)
        read = [moment.replace(tzinfo=local) for moment in read]
        if isinstance(local, ZoneInfo):
            for moment, at in zip(read, lines, strict=True):
                _check_clock_change(moment, zone, at)
    return np.array([moment.timestamp() for moment in read])


def _moment(word: str, line: int) -> datetime:
    try:
        return datetime.fromisoformat(word.removesuffix(" UTC") + ("+00:00" if word.endswith(" UTC") else ""))
    except ValueError:
        raise InputError(
            f"line {line}: {word!r:.40} is not a time; write 2022-01-31 18:00, 2022-01-31T18:00Z or Unix seconds"
        ) from None


def _check_clock_change(moment: datetime, zone: str, line: int) -> None:
    first, second = moment.utcoffset(), moment.replace(fold=1).utcoffset()
    if first == second:
        return
    exists = moment.astimezone(UTC).astimezone(moment.tzinfo).replace(tzinfo=None) == moment.replace(tzinfo=None)
    fact = "is ambiguous" if exists else "does not exist"
    raise InputError(
        f"line {line}: {moment:%Y-%m-%d %H:%M} {fact} in {zone} because of daylight saving time; use a file in UTC or "
        "with offsets, or give a fixed offset such as zone='+01:00' if its times have no daylight saving time"
    )
