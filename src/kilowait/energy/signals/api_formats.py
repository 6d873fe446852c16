"""JSON formats of carbon-intensity APIs: GB Carbon Intensity API, Electricity Maps, carbon-aware SDK, WattTime."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from kilowait.energy.signals.signal_file import NOT_STATED, RawSamples, as_number, single_value
from kilowait.energy.signals.timestamps import unix_seconds
from kilowait.energy.signals.units import find_intensity_unit
from kilowait.errors import InputError

__all__ = ["detect_format", "read_carbon_aware_sdk", "read_electricity_maps_api", "read_gb_api", "read_watttime"]

_DURATION = re.compile(r"(?:(\d+)\.)?(\d+):(\d\d)(?::(\d\d)(?:\.\d+)?)?")


def detect_format(content: Any) -> str | None:
    """The name of the format of this JSON; None if it is unknown."""
    if isinstance(content, dict) and "error" in content and "data" not in content:
        raise InputError(f"this is an error response of a service, not data: {content['error']!r:.120}")
    rows = _rows(content)
    keys = {str(key).lower() for key in rows[0]} if rows else set()
    if {"from", "to"} <= keys and keys & {"intensity", "regions"}:
        return "gb-api"
    if {"datetime", "carbonintensity"} <= keys:
        return "electricity-maps-api"
    if {"time", "rating"} <= keys:
        return "carbon-aware-sdk"
    if {"point_time", "value"} <= keys:
        return "watttime"
    return None


def read_gb_api(content: Any, zone: str | None) -> RawSamples:
    """Half-hours of Great Britain: the actual value, else the forecast; regions have only forecasts."""
    rows = _rows(content)
    if any("regions" in row for row in rows):
        raise InputError("the file contains all regions; request one region from the service (/regionid/13)")
    start = unix_seconds([_text(row, "from") for row in rows], zone)
    end = unix_seconds([_text(row, "to") for row in rows], zone)
    actual = _values([_part(row).get("actual") for row in rows], "actual")
    forecast = _values([_part(row).get("forecast") for row in rows], "forecast")
    forecasts = int(np.count_nonzero(np.isnan(actual) & ~np.isnan(forecast)))
    facts: dict[str, Any] = {"actual": int(np.count_nonzero(~np.isnan(actual))), "forecast": forecasts}
    if forecasts:
        facts["note"] = f"{forecasts} of {len(rows)} values are forecasts"
    region = _region(content)
    location = "GB" if region is None else f"GB, {region}"
    value = np.where(np.isnan(actual), forecast, actual)
    return RawSamples(start, value, "g/kWh", location, "average", "direct", _usual(end - start), facts)


def read_electricity_maps_api(content: Any, zone: str | None, location: str | None) -> RawSamples:
    """Hours of a zone, or one hour; life-cycle intensity unless the file says direct."""
    rows = _rows(content)
    place = single_value(
        [str(row.get("zone") or _at(content, "zone")) for row in rows], location, "zone", "give location="
    )
    kinds = [str(row.get("emissionFactorType", "")) for row in rows]
    kind = single_value(kinds, None, "emissionFactorType", "keep one")
    estimated = sum(bool(row.get("isEstimated")) for row in rows)
    facts: dict[str, Any] = {"estimated": estimated}
    if estimated:
        facts["note"] = f"{estimated} of {len(rows)} values are estimates of the publisher"
    step = {"hourly": 3600.0, "15_minutes": 900.0, "5_minutes": 300.0}.get(_at(content, "temporalGranularity"))
    return RawSamples(
        unix_seconds([_text(row, "datetime") for row in rows], zone),
        _values([row.get("carbonIntensity") for row in rows], "carbonIntensity"),
        "g/kWh",
        place,
        "average",
        "direct" if kind == "direct" else "life-cycle",
        3600.0 if step is None and len(rows) == 1 else step,
        facts,
    )


def read_carbon_aware_sdk(content: Any, zone: str | None, location: str | None) -> RawSamples:
    """Ratings of the SDK's data files and responses: a time with its offset, a duration ``HH:MM``."""
    rows = [{str(key).lower(): value for key, value in row.items()} for row in _rows(content)]
    place = single_value([str(row.get("location", "")) for row in rows], location, "location", "give location=")
    rows = [row for row in rows if place is None or str(row.get("location", "")) in ("", place)]
    time = unix_seconds([_text(row, "time") for row in rows], zone)
    value = _values([row.get("rating") for row in rows], "rating")
    stated = [_seconds(row["duration"]) for row in rows if row.get("duration") is not None]
    return RawSamples(time, value, "g/kWh", place, NOT_STATED, NOT_STATED, _usual(np.array(stated)))


def read_watttime(content: Any, zone: str | None) -> RawSamples:
    """Points of WattTime, in the unit named in its meta (or each point); marginal unless the signal is average."""
    rows = _rows(content)
    meta = content.get("meta", {}) if isinstance(content, dict) else {}
    units = [str(meta.get("units", "")), *(str(row.get("units", "")) for row in rows)]
    unit = single_value(units, None, "unit", "convert them to one")
    signal = str(meta.get("signal_type", "co2_moer"))
    time = unix_seconds([_text(row, "point_time") for row in rows], zone)
    step = meta.get("data_point_period_seconds")
    return RawSamples(
        time,
        _values([row.get("value") for row in rows], "value"),
        None if unit is None else find_intensity_unit(unit) or unit,
        meta.get("region"),
        "average" if "aoer" in signal else "marginal",
        NOT_STATED,
        None if step is None else float(step),
    )


def _rows(content: Any) -> list[dict[str, Any]]:
    """The list of rows in a response, at any nesting depth."""
    if isinstance(content, dict) and "carbonIntensity" in content:  # "latest" of Electricity Maps is one row.
        return [content]
    while isinstance(content, dict):
        lists = ("data", "history", "Emissions", "emissions")
        content = next((content[key] for key in lists if key in content), None)
        if isinstance(content, list) and len(content) == 1 and isinstance(content[0], dict):
            content = content[0] if "data" in content[0] else content
    if not isinstance(content, list) or not content or not all(isinstance(row, dict) for row in content):
        raise InputError("this JSON contains no list of values; see the docs for the supported formats")
    return content


def _at(content: Any, key: str) -> str:
    return str(content.get(key, "")) if isinstance(content, dict) else ""


def _region(content: Any) -> str | None:
    inner = content.get("data") if isinstance(content, dict) else None
    inner = inner[0] if isinstance(inner, list) and inner else inner
    return inner.get("shortname") if isinstance(inner, dict) and "data" in inner else None


def _part(row: dict[str, Any]) -> dict[str, Any]:
    part = row.get("intensity")
    return part if isinstance(part, dict) else {}


def _text(row: dict[str, Any], key: str) -> str:
    if key not in row:
        raise InputError(f"a row has no key {key!r}: {row!r:.100}")
    return str(row[key])


def _values(values: Sequence[Any], name: str) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    found = np.empty(len(values))
    for at, value in enumerate(values):
        try:
            found[at] = as_number(value)
        except ValueError as problem:
            raise InputError(f"row {at + 1}, {name!r}: {problem}; correct the file") from None
    return found


def _seconds(duration: Any) -> float:
    match = _DURATION.fullmatch(str(duration).strip())
    if match is None:
        raise InputError(f"the duration {duration!r:.40} is invalid; it must be HH:MM or HH:MM:SS")
    days, hours, minutes, seconds = (float(part or 0) for part in match.groups())
    return days * 86400 + hours * 3600 + minutes * 60 + seconds


def _usual(steps: np.ndarray[Any, np.dtype[np.float64]]) -> float | None:
    return float(np.median(steps)) if len(steps) and np.median(steps) > 0 else None
