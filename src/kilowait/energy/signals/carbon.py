"""Reader of carbon-intensity files of several publishers, as a Series in g/kWh, UTC."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from typing import Any, Literal

import numpy as np

from kilowait.energy.signals import api_formats
from kilowait.energy.signals.signal_file import (
    NOT_STATED,
    RawSamples,
    SignalFile,
    Table,
    open_signal,
    plain_columns,
    single_value,
    times_of,
    unit_of,
)
from kilowait.energy.signals.units import INTENSITY_UNIT, find_intensity_unit, intensity_factor
from kilowait.errors import InputError, UnknownNameError
from kilowait.series import Gaps, Series

__all__ = ["CARBON_FORMATS", "read_carbon"]

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
        found, readings = _read(file, format, carbon_scope, columns, zone, location)
        factor = intensity_factor(_resolve_unit(readings.unit, unit))
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


def _resolve_unit(file_unit: str | None, unit: str | None) -> str:
    if file_unit is None and unit is None:
        raise InputError("the file names no unit; give it, such as unit='g/kWh' or unit='lb/MWh'")
    if file_unit is not None and unit is not None and intensity_factor(file_unit) != intensity_factor(unit):
        raise InputError(f"mixed units: the file is in {file_unit}, but unit={unit!r} was given; leave unit out")
    return file_unit or unit or ""


def _read(
    file: SignalFile,
    format: str | None,
    carbon_scope: Scope,
    columns: Mapping[str, str] | None,
    zone: str | None,
    location: str | None,
) -> tuple[str, RawSamples]:
    if file.is_json():
        content = file.json()
        found = format or api_formats.detect_format(content)
        if found == "gb-api":
            return found, api_formats.read_gb_api(content, zone)
        if found == "electricity-maps-api":
            return found, api_formats.read_electricity_maps_api(content, zone, location)
        if found == "carbon-aware-sdk":
            return found, api_formats.read_carbon_aware_sdk(content, zone, location)
        if found == "watttime":
            return found, api_formats.read_watttime(content, zone)
        raise InputError(f"this JSON is in none of the supported formats ({', '.join(CARBON_FORMATS)})")
    table = file.table()
    found = format or ("csv" if columns else _find_format(table))
    if found == "electricity-maps":
        return found, _electricity_maps(table, carbon_scope, zone, location)
    if found == "electricity-maps-academic":
        return found, _academic(table, zone, location)
    if found == "lets-wait-awhile":
        return found, _lets_wait_awhile(table, zone)
    if found == "csv":
        return found, _plain(table, columns, zone)
    raise InputError(f"this is not JSON, and cannot be read as {found}")


def _find_format(table: Table) -> str:
    names = [name.lower() for name in table.header]
    if "zone id" in names and any(name.startswith("carbon intensity") for name in names):
        return "electricity-maps"
    if "carbon_intensity_avg" in names:
        return "electricity-maps-academic"
    if names == ["time", "carbon intensity"]:
        return "lets-wait-awhile"
    return "csv"


def _electricity_maps(table: Table, carbon_scope: Scope, zone: str | None, location: str | None) -> RawSamples:
    table, place = _one_place(table, "Zone Id", location)
    marks = ("(direct",) if carbon_scope == "direct" else ("(lca", "(life cycle", "(life-cycle")
    named = [at for at, name in enumerate(table.header) if name.lower().startswith("carbon intensity")]
    column = next((at for at in named if any(mark in table.header[at].lower() for mark in marks)), None)
    if column is None:
        raise InputError(f"the file has no column of {carbon_scope} carbon intensity; it has {', '.join(table.header)}")
    estimated = 0
    if "Data Estimated" in table.header:
        estimated = sum(word.lower() == "true" for word in table.words(table.index("Data Estimated")))
    facts: dict[str, Any] = {"estimated": estimated}
    if estimated:
        facts["note"] = f"{estimated} of {len(table.rows)} values are estimates of the publisher"
    return RawSamples(
        times_of(table, 0, zone),
        table.numbers(column),
        unit_of(table, column, find_intensity_unit),
        place,
        "average",
        carbon_scope,
        facts=facts,
    )


def _academic(table: Table, zone: str | None, location: str | None) -> RawSamples:
    place = None
    if "zone_name" in table.header:
        table, place = _one_place(table, "zone_name", location)
    time = table.index("datetime" if "datetime" in table.header else "timestamp")
    value = table.index("carbon_intensity_avg")
    # The publisher's times are UTC and its intensities g/kWh; this older format states neither.
    unit = unit_of(table, value, find_intensity_unit) or INTENSITY_UNIT
    return RawSamples(times_of(table, time, zone or "UTC"), table.numbers(value), unit, place, "average")


def _lets_wait_awhile(table: Table, zone: str | None) -> RawSamples:
    facts = {} if zone is not None else {"note": "times without a zone, taken as UTC"}
    time = times_of(table, 0, zone or "UTC")
    return RawSamples(time, table.numbers(1), INTENSITY_UNIT, None, "average", "life-cycle", facts=facts)


def _plain(table: Table, columns: Mapping[str, str] | None, zone: str | None) -> RawSamples:
    at = plain_columns(table, columns, find_intensity_unit)
    name = table.header[at.value].lower()
    kind = "marginal" if "moer" in name or "marginal" in name else NOT_STATED
    unit = unit_of(table, at.value, find_intensity_unit)
    return RawSamples(times_of(table, at.time, zone), table.numbers(at.value), unit, None, kind)


def _one_place(table: Table, column: str, location: str | None) -> tuple[Table, str | None]:
    words = table.words(table.index(column))
    place = single_value(words, location, "zone", "give location= to choose one")
    several = place is not None and len(set(words)) > 1
    return (table.where(table.index(column), place) if several and place is not None else table), place
