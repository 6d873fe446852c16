"""Reader of carbon intensity, as a Series in g/kWh, UTC: CSV files of several publishers, and JSON of web APIs.

The APIs are those of GB Carbon Intensity, Electricity Maps, the carbon-aware SDK and WattTime.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import Any, Literal, NamedTuple

import numpy as np

from kilowait.energy.signals.signal_file import (
    NOT_STATED,
    RawSamples,
    SignalFile,
    SignalTable,
    as_number,
    chosen_unit,
    open_signal,
    plain_columns,
    single_value,
    times_of,
    unit_of,
)
from kilowait.energy.signals.units import INTENSITY_UNIT, find_intensity_unit, intensity_factor, unix_seconds
from kilowait.errors import InputError, UnknownNameError
from kilowait.series import Floats, Gaps, Series

Scope = Literal["direct", "life-cycle"]

CARBON_FORMATS: dict[str, str] = {
    "electricity-maps": "yearly CSV of Electricity Maps, direct and life-cycle",
    "electricity-maps-api": "JSON of the Electricity Maps API",
    "electricity-maps-academic": "older CSV of Electricity Maps with carbon_intensity_avg",
    "gb-api": "JSON of the GB Carbon Intensity API",
    "carbon-aware-sdk": "JSON of the carbon-aware SDK",
    "watttime": "JSON of WattTime",
    "lets-wait-awhile": "CSV with the columns Time and Carbon Intensity",
    "csv": "any CSV with a column of times and one of values",
}
"""Values of ``format=``, with a description."""


def read_carbon(
    path: str | PathLike[str],
    *,
    carbon_scope: Scope = "life-cycle",
    format: str | None = None,
    columns: Mapping[str, str] | None = None,
    zone: str | None = None,
    unit: str | None = None,
    location: str | None = None,
    gaps: Gaps = "error",
    longest_s: float | None = None,
) -> Series:
    """Carbon intensity in g/kWh over time, UTC; the format is found by content (`format` forces one).

    `carbon_scope` chooses between direct and life-cycle emissions if a file has both; otherwise ``meta["scope"]`` gives
    the scope of the file. `columns` names the columns of a plain CSV: ``{"time": "when", "value": "gCO2"}``. `zone` is
    the time zone of times without an offset. `unit` is needed if the file does not name one (``lb/MWh`` is converted).
    `location` chooses in a file with several locations. `gaps` and `longest_s` are those of `Series.from_samples`.

    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "tiny.csv"
    >>> _ = path.write_text("time (UTC),gCO2/kWh\\n2022-01-01 00:00,200\\n2022-01-01 01:00,100\\n")
    >>> series = read_carbon(path)
    >>> float(series.mean(series.start_s, series.end_s)), series.unit
    (150.0, 'g/kWh')
    """
    if format is not None and format not in CARBON_FORMATS:
        raise UnknownNameError("carbon format", format, CARBON_FORMATS)
    if carbon_scope not in ("direct", "life-cycle"):
        raise InputError(f"scope is {carbon_scope!r}; it must be 'direct' or 'life-cycle'")
    file = open_signal(path)
    with file.named():
        found, readings = _read(file, format, _Choice(carbon_scope, columns, zone, location))
        factor = intensity_factor(chosen_unit(readings.unit, unit, intensity_factor, "unit='g/kWh' or unit='lb/MWh'"))
        meta = {
            "name": "carbon intensity",
            "location": readings.location or location or NOT_STATED,
            "kind": readings.kind,
            "scope": readings.carbon_scope,
            **file.origin(),
            "format": found,
            **readings.facts,
        }
        series = Series.from_samples(
            readings.time_s,
            readings.value * factor,
            INTENSITY_UNIT,
            meta,
            step_s=readings.step_s,
            gaps=gaps,
            longest_s=longest_s,
            unix_zero_s=0.0,
        )
        negative = np.flatnonzero(series.value < 0)
        if len(negative):
            at = int(negative[0])
            raise InputError(
                f"carbon intensity is negative {len(negative)} time(s), first {series.value[at]:g} g/kWh at "
                f"{series.moment(series.edge_s[at])}; correct the file, or read prices with read_price"
            )
    return series


class _Choice(NamedTuple):
    """What the caller chose; each format uses what applies to it."""

    carbon_scope: Scope
    columns: Mapping[str, str] | None
    zone: str | None
    location: str | None


def _read(file: SignalFile, format: str | None, choice: _Choice) -> tuple[str, RawSamples]:
    if file.is_json():
        content = file.json()
        found = format or _json_format(content) or ""
        if found not in _JSON_READERS:
            raise InputError(f"this JSON is in none of the supported formats ({', '.join(CARBON_FORMATS)})")
        return found, _JSON_READERS[found](content, choice)
    table = file.table()
    found = format or ("csv" if choice.columns else _table_format(table))
    if found not in _TABLE_READERS:
        raise InputError(f"this is not JSON, and cannot be read as {found}")
    return found, _TABLE_READERS[found](table, choice)


# -- tables ----------------------------------------------------------------------------------------


def _table_format(table: SignalTable) -> str:
    names = [name.lower() for name in table.header]
    if "zone id" in names and any(name.startswith("carbon intensity") for name in names):
        return "electricity-maps"
    if "carbon_intensity_avg" in names:
        return "electricity-maps-academic"
    if names == ["time", "carbon intensity"]:
        return "lets-wait-awhile"
    return "csv"


def _electricity_maps(table: SignalTable, choice: _Choice) -> RawSamples:
    carbon_scope = choice.carbon_scope
    table, place = _one_place(table, "Zone Id", choice.location)
    marks = ("(direct",) if carbon_scope == "direct" else ("(lca", "(life cycle", "(life-cycle")
    named = [at for at, name in enumerate(table.header) if name.lower().startswith("carbon intensity")]
    column = next((at for at in named if any(mark in table.header[at].lower() for mark in marks)), None)
    if column is None:
        raise InputError(f"the file has no column of {carbon_scope} carbon intensity; it has {', '.join(table.header)}")
    flags = table.words(table.index("Data Estimated")) if "Data Estimated" in table.header else []
    return RawSamples(
        times_of(table, 0, choice.zone),
        table.numbers(column),
        unit_of(table, column, find_intensity_unit),
        place,
        "average",
        carbon_scope,
        facts=_estimate_facts(sum(word.lower() == "true" for word in flags), len(table.rows)),
    )


def _estimate_facts(estimated: int, values: int) -> dict[str, Any]:
    note = {"note": f"{estimated} of {values} values are estimates of the publisher"} if estimated else {}
    return {"estimated": estimated, **note}


def _academic(table: SignalTable, choice: _Choice) -> RawSamples:
    place = None
    if "zone_name" in table.header:
        table, place = _one_place(table, "zone_name", choice.location)
    time = table.index("datetime" if "datetime" in table.header else "timestamp")
    value = table.index("carbon_intensity_avg")
    # The publisher's times are UTC and its intensities g/kWh; this older format states neither.
    unit = unit_of(table, value, find_intensity_unit) or INTENSITY_UNIT
    return RawSamples(times_of(table, time, choice.zone or "UTC"), table.numbers(value), unit, place, "average")


def _lets_wait_awhile(table: SignalTable, choice: _Choice) -> RawSamples:
    facts = {} if choice.zone is not None else {"note": "times without a zone, taken as UTC"}
    time = times_of(table, 0, choice.zone or "UTC")
    return RawSamples(time, table.numbers(1), INTENSITY_UNIT, None, "average", "life-cycle", facts=facts)


def _plain(table: SignalTable, choice: _Choice) -> RawSamples:
    at = plain_columns(table, choice.columns, find_intensity_unit)
    name = table.header[at.value].lower()
    kind = "marginal" if "moer" in name or "marginal" in name else NOT_STATED
    unit = unit_of(table, at.value, find_intensity_unit)
    return RawSamples(times_of(table, at.time, choice.zone), table.numbers(at.value), unit, None, kind)


def _one_place(table: SignalTable, column: str, location: str | None) -> tuple[SignalTable, str | None]:
    words = table.words(table.index(column))
    place = single_value(words, location, "zone", "give location= to choose one")
    several = place is not None and len(set(words)) > 1
    return (table.where(table.index(column), place) if several and place is not None else table), place


# -- JSON of web APIs ------------------------------------------------------------------------------


_DURATION = re.compile(r"(?:(\d+)\.)?(\d+):(\d\d)(?::(\d\d)(?:\.\d+)?)?")


def _json_format(content: Any) -> str | None:
    """The name of the format of this JSON; None if it is unknown."""
    if isinstance(content, dict) and "error" in content and "data" not in content:
        raise InputError(f"this is an error response of a service, not data: {content['error']!r:.120}")
    rows = _api_rows(content)
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


def _gb_api(content: Any, choice: _Choice) -> RawSamples:
    """Half-hours of Great Britain: the actual value, else the forecast; regions have only forecasts."""
    rows = _api_rows(content)
    if any("regions" in row for row in rows):
        raise InputError("the file contains all regions; request one region from the service (/regionid/13)")
    start = unix_seconds([_cell(row, "from") for row in rows], choice.zone)
    end = unix_seconds([_cell(row, "to") for row in rows], choice.zone)
    actual = _api_numbers([_part(row).get("actual") for row in rows], "actual")
    forecast = _api_numbers([_part(row).get("forecast") for row in rows], "forecast")
    forecasts = int(np.count_nonzero(np.isnan(actual) & ~np.isnan(forecast)))
    facts: dict[str, Any] = {"actual": int(np.count_nonzero(~np.isnan(actual))), "forecast": forecasts}
    if forecasts:
        facts["note"] = f"{forecasts} of {len(rows)} values are forecasts"
    region = _region(content)
    location = "GB" if region is None else f"GB, {region}"
    value = np.where(np.isnan(actual), forecast, actual)
    return RawSamples(start, value, "g/kWh", location, "average", "direct", _usual(end - start), facts)


def _electricity_maps_api(content: Any, choice: _Choice) -> RawSamples:
    """Hours of a zone, or one hour; life-cycle intensity unless the file says direct."""
    rows = _api_rows(content)
    place = single_value(
        [str(row.get("zone") or _text_at(content, "zone")) for row in rows], choice.location, "zone", "give location="
    )
    kinds = [str(row.get("emissionFactorType", "")) for row in rows]
    kind = single_value(kinds, None, "emissionFactorType", "keep one")
    step = {"hourly": 3600.0, "15_minutes": 900.0, "5_minutes": 300.0}.get(_text_at(content, "temporalGranularity"))
    return RawSamples(
        unix_seconds([_cell(row, "datetime") for row in rows], choice.zone),
        _api_numbers([row.get("carbonIntensity") for row in rows], "carbonIntensity"),
        "g/kWh",
        place,
        "average",
        "direct" if kind == "direct" else "life-cycle",
        3600.0 if step is None and len(rows) == 1 else step,
        _estimate_facts(sum(bool(row.get("isEstimated")) for row in rows), len(rows)),
    )


def _carbon_aware_sdk(content: Any, choice: _Choice) -> RawSamples:
    """Ratings of the SDK's data files and responses: a time with its offset, a duration ``HH:MM``."""
    rows = [{str(key).lower(): value for key, value in row.items()} for row in _api_rows(content)]
    place = single_value([str(row.get("location", "")) for row in rows], choice.location, "location", "give location=")
    rows = [row for row in rows if place is None or str(row.get("location", "")) in ("", place)]
    time = unix_seconds([_cell(row, "time") for row in rows], choice.zone)
    value = _api_numbers([row.get("rating") for row in rows], "rating")
    stated = [_duration_s(row["duration"]) for row in rows if row.get("duration") is not None]
    return RawSamples(time, value, "g/kWh", place, NOT_STATED, NOT_STATED, _usual(np.array(stated)))


def _watttime(content: Any, choice: _Choice) -> RawSamples:
    """Points of WattTime, in the unit named in its meta (or each point); marginal unless the signal is average."""
    rows = _api_rows(content)
    meta = content.get("meta", {}) if isinstance(content, dict) else {}
    units = [str(meta.get("units", "")), *(str(row.get("units", "")) for row in rows)]
    unit = single_value(units, None, "unit", "convert them to one")
    signal = str(meta.get("signal_type", "co2_moer"))
    time = unix_seconds([_cell(row, "point_time") for row in rows], choice.zone)
    step = meta.get("data_point_period_seconds")
    return RawSamples(
        time,
        _api_numbers([row.get("value") for row in rows], "value"),
        None if unit is None else find_intensity_unit(unit) or unit,
        meta.get("region"),
        "average" if "aoer" in signal else "marginal",
        NOT_STATED,
        None if step is None else float(step),
    )


def _api_rows(content: Any) -> list[dict[str, Any]]:
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


def _text_at(content: Any, key: str) -> str:
    return str(content.get(key, "")) if isinstance(content, dict) else ""


def _region(content: Any) -> str | None:
    inner = content.get("data") if isinstance(content, dict) else None
    inner = inner[0] if isinstance(inner, list) and inner else inner
    return inner.get("shortname") if isinstance(inner, dict) and "data" in inner else None


def _part(row: dict[str, Any]) -> dict[str, Any]:
    part = row.get("intensity")
    return part if isinstance(part, dict) else {}


def _cell(row: dict[str, Any], key: str) -> str:
    if key not in row:
        raise InputError(f"a row has no key {key!r}: {row!r:.100}")
    return str(row[key])


def _api_numbers(values: Sequence[Any], name: str) -> Floats:
    found = np.empty(len(values))
    for at, value in enumerate(values):
        try:
            found[at] = as_number(value)
        except ValueError as problem:
            raise InputError(f"row {at + 1}, {name!r}: {problem}; correct the file") from None
    return found


def _duration_s(duration: Any) -> float:
    match = _DURATION.fullmatch(str(duration).strip())
    if match is None:
        raise InputError(f"the duration {duration!r:.40} is invalid; it must be HH:MM or HH:MM:SS")
    days, hours, minutes, seconds = (float(part or 0) for part in match.groups())
    return days * 86400 + hours * 3600 + minutes * 60 + seconds


def _usual(steps: Floats) -> float | None:
    return float(np.median(steps)) if len(steps) and np.median(steps) > 0 else None


_JSON_READERS: dict[str, Callable[[Any, _Choice], RawSamples]] = {
    "gb-api": _gb_api,
    "electricity-maps-api": _electricity_maps_api,
    "carbon-aware-sdk": _carbon_aware_sdk,
    "watttime": _watttime,
}
_TABLE_READERS: dict[str, Callable[[SignalTable, _Choice], RawSamples]] = {
    "electricity-maps": _electricity_maps,
    "electricity-maps-academic": _academic,
    "lets-wait-awhile": _lets_wait_awhile,
    "csv": _plain,
}
