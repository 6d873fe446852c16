"""Carbon-intensity web APIs: request URLs and response rows. `kilowait.energy.signals` reads the values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol
from urllib.parse import urlencode, urlsplit

from kilowait.energy.signals.units import unix_seconds
from kilowait.errors import InputError, MeterError, UnknownNameError

Row = dict[str, Any]
DAY_S = 86400.0
SERVICES = ("gb", "electricity-maps", "watttime")
REGIONS = (
    "North Scotland", "South Scotland", "North West England", "North East England", "South Yorkshire",
    "North Wales, Merseyside and Cheshire", "South Wales", "West Midlands", "East Midlands", "East England",
    "South West England", "South England", "London", "South East England", "England", "Scotland", "Wales",
)  # fmt: skip
"""Regions of Great Britain, by their number from 1."""


class Service(Protocol):
    """A carbon-intensity service for one location."""

    key: str
    """Key of the time in a row."""

    def past(self, begin_s: float, end_s: float) -> Iterator[tuple[str, float]]:
        """URL and Unix end time of each request for a time span, split into parts that the service allows."""
        ...

    def recent(self, now_s: float) -> str:
        """URL of the last day."""
        ...

    def latest(self) -> str:
        """URL of the current value."""
        ...

    def rows(self, response: Any) -> list[Row]:
        """The rows of a response, unchanged; MeterError if the response has no rows."""
        ...

    def value(self, row: Row) -> float | None:
        """The final value of a row; None if there is none yet."""
        ...

    def document(self, rows: list[Row]) -> dict[str, Any]:
        """Rows of many responses as one document in the format of the service."""
        ...

    def location(self) -> str:
        """The location as text."""
        ...


@dataclass(frozen=True)
class GreatBritain:
    """The GB Carbon Intensity API: half-hours of the whole country or of a region from 1 to 17. No token needed."""

    base_url: str = "https://api.carbonintensity.org.uk"
    region: int | None = None
    key = "from"
    max_span_s = 7 * DAY_S
    """Time span of one request; the service allows 14 days."""

    def __post_init__(self) -> None:
        if self.region is not None and not 1 <= self.region <= len(REGIONS):
            listed = ", ".join(f"{number} {name}" for number, name in enumerate(REGIONS, 1))
            raise InputError(f"region is {self.region}; the regions are {listed}")

    def past(self, begin_s: float, end_s: float) -> Iterator[tuple[str, float]]:
        """URLs for calendar weeks of the time span."""
        for begin, end in _split_span(begin_s, end_s, self.max_span_s):
            span = f"{_time_text(begin)}/{_time_text(end)}"
            if self.region is None:
                yield f"{self.base_url}/intensity/{span}", end
            else:
                yield f"{self.base_url}/regional/intensity/{span}/regionid/{self.region}", end

    def recent(self, now_s: float) -> str:
        """URL of the last day, up to the end of the current half-hour."""
        now = _time_text(now_s // 1800 * 1800 + 1800)
        if self.region is None:
            return f"{self.base_url}/intensity/{now}/pt24h"
        return f"{self.base_url}/regional/intensity/{now}/pt24h/regionid/{self.region}"

    def latest(self) -> str:
        """URL of the current half-hour."""
        return f"{self.base_url}/" + ("intensity" if self.region is None else f"regional/regionid/{self.region}")

    def rows(self, response: Any) -> list[Row]:
        """Half-hour rows; for a region they are nested one list deeper."""
        data = response.get("data") if isinstance(response, dict) else None
        if self.region is not None:
            data = data[0] if isinstance(data, list) and len(data) == 1 else data
            if isinstance(data, dict) and data.get("regionid") not in (None, self.region):
                raise MeterError(f"requested region {self.region}, but the response is for {data['regionid']}")
            data = data.get("data") if isinstance(data, dict) else None
        return _rows(data, {"from", "to", "intensity"}, "the GB Carbon Intensity API", response)

    def value(self, row: Row) -> float | None:
        """The actual value; for regions the forecast, as they have no actual values."""
        intensity = row["intensity"] if isinstance(row["intensity"], Mapping) else {}
        value = intensity.get("actual" if self.region is None else "forecast")
        return None if value is None else float(value)

    def document(self, rows: list[Row]) -> dict[str, Any]:
        """All rows in the format of one response."""
        if self.region is None:
            return {"data": rows}
        return {"data": {"regionid": self.region, "shortname": REGIONS[self.region - 1], "data": rows}}

    def location(self) -> str:
        """The location as text."""
        return "Great Britain" if self.region is None else REGIONS[self.region - 1]


@dataclass(frozen=True)
class ElectricityMaps:
    """Electricity Maps, version 4: hours of one zone. Needs a token.

    >>> next(ElectricityMaps("DE").past(0.0, 3600.0))[0]
    'https://api.electricitymaps.com/v4/carbon-intensity/past-range?zone=DE&start=1970-01-01T00%3A00Z\
&end=1970-01-01T01%3A00Z&emissionFactorType=lifecycle&temporalGranularity=hourly&disableCallerLookup=true'
    """

    zone: str
    base_url: str = "https://api.electricitymaps.com"
    carbon_scope: str = "life-cycle"
    """``life-cycle`` or ``direct``."""
    key = "datetime"
    max_span_s = 7 * DAY_S
    """Time span of one request; the service allows 10 days."""

    def __post_init__(self) -> None:
        if not self.zone or not self.zone.replace("-", "").isalnum():
            raise InputError(f"the zone is {self.zone!r}; write one such as DE, FR or US-CAL-CISO")
        if self.carbon_scope not in ("life-cycle", "direct"):
            raise InputError(f"the scope is {self.carbon_scope!r}; it must be life-cycle or direct")

    def past(self, begin_s: float, end_s: float) -> Iterator[tuple[str, float]]:
        """URLs for calendar weeks of the time span."""
        for begin, end in _split_span(begin_s, end_s, self.max_span_s):
            yield self._at("past-range", start=_time_text(begin), end=_time_text(end)), end

    def recent(self, now_s: float) -> str:
        """URL of the last 24 hours."""
        return self._at("history")

    def latest(self) -> str:
        """URL of the current hour."""
        return self._at("latest")

    def _at(self, endpoint: str, **query_parameters: str) -> str:
        factor_type = "lifecycle" if self.carbon_scope == "life-cycle" else "direct"
        # The default granularity of version 4 depends on the endpoint.
        fixed = {"emissionFactorType": factor_type, "temporalGranularity": "hourly", "disableCallerLookup": "true"}
        query = urlencode({"zone": self.zone, **query_parameters, **fixed})
        return f"{self.base_url}/v4/carbon-intensity/{endpoint}?{query}"

    def rows(self, response: Any) -> list[Row]:
        """Hourly rows; checks the zone, because the service may respond for the location of the client instead."""
        data = response
        if isinstance(response, dict) and "carbonIntensity" not in response:
            data = response.get("data", response.get("history"))
        elif isinstance(response, dict):
            data = [response]
        rows = _rows(data, {"datetime", "carbonIntensity"}, "Electricity Maps", response)
        for row in [response, *rows]:
            if isinstance(row, dict) and row.get("zone", self.zone) != self.zone:
                raise MeterError(
                    f"requested zone {self.zone}, but the response is for {row['zone']}; check the name of the zone"
                )
        return rows

    def value(self, row: Row) -> float | None:
        """Grams per kWh."""
        return None if row["carbonIntensity"] is None else float(row["carbonIntensity"])

    def document(self, rows: list[Row]) -> dict[str, Any]:
        """All rows in the format of one response."""
        return {"zone": self.zone, "data": rows}

    def location(self) -> str:
        """The location as text."""
        return f"zone {self.zone}"


@dataclass(frozen=True)
class WattTime:
    """WattTime, version 3: marginal emissions (MOER) of a grid region every 5 minutes, lb/MWh. Needs a login.

    >>> WattTime("CAISO_NORTH").latest()
    'https://api.watttime.org/v3/forecast?region=CAISO_NORTH&signal_type=co2_moer&horizon_hours=0'
    """

    region: str
    base_url: str = "https://api.watttime.org"
    key = "point_time"
    max_span_s = 28 * DAY_S
    """Time span of one request; the service allows 32 days."""
    period_s = 300
    """Time between two values."""
    units = "lbs_co2_per_mwh"

    def __post_init__(self) -> None:
        if not self.region or not self.region.replace("_", "").isalnum():
            raise InputError(f"the region is {self.region!r}; write one such as CAISO_NORTH or DE")

    @property
    def login_url(self) -> str:
        """URL that gives a token for a user name and a password."""
        return f"{self.base_url}/login"

    def past(self, begin_s: float, end_s: float) -> Iterator[tuple[str, float]]:
        """URLs for parts of the time span."""
        for begin, end in _split_span(begin_s, end_s, self.max_span_s):
            yield self._at("historical", start=_time_text(begin), end=_time_text(end)), end

    def recent(self, now_s: float) -> str:
        """URL of the last day, up to the current five minutes."""
        now = now_s // self.period_s * self.period_s
        return self._at("historical", start=_time_text(now - DAY_S), end=_time_text(now))

    def latest(self) -> str:
        """URL of the forecast for now, which is the current value."""
        return self._at("forecast", horizon_hours="0")

    def _at(self, endpoint: str, **query_parameters: str) -> str:
        query = urlencode({"region": self.region, "signal_type": "co2_moer", **query_parameters})
        return f"{self.base_url}/v3/{endpoint}?{query}"

    def rows(self, response: Any) -> list[Row]:
        """Five-minute rows; checks the region, the unit and the time between values, which `meta` states."""
        data = response.get("data") if isinstance(response, dict) else None
        rows = _rows(data, {"point_time", "value"}, "WattTime", response)
        meta = response.get("meta")
        for name, expected in self._meta.items():
            found = meta.get(name, expected) if isinstance(meta, dict) else expected
            if found != expected:
                raise MeterError(
                    f"requested {name} {expected} of WattTime, but the response has {found!r:.60}; check the region"
                )
        return rows

    def value(self, row: Row) -> float | None:
        """Pounds per MWh."""
        return None if row["value"] is None else float(row["value"])

    def document(self, rows: list[Row]) -> dict[str, Any]:
        """All rows in the format of one response."""
        return {"data": rows, "meta": self._meta}

    @property
    def _meta(self) -> dict[str, Any]:
        return {
            "region": self.region,
            "signal_type": "co2_moer",
            "units": self.units,
            "data_point_period_seconds": self.period_s,
        }

    def location(self) -> str:
        """The location as text."""
        return f"region {self.region}"


def check_base_url(url: str) -> str:
    """A validated base URL of a service, without a trailing slash."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.username:
        raise InputError(f"the base URL is {url!r}; write it as https://api.example.org")
    return url.rstrip("/")


def make_service(
    name: str, *, zone: str | None, region: int | None, carbon_scope: str, base_url: str | None
) -> GreatBritain | ElectricityMaps | WattTime:
    """A service by name, for a zone (a region of the grid for WattTime) or a region of Great Britain.

    >>> make_service("gb", zone=None, region=13, carbon_scope="life-cycle", base_url=None).location()
    'London'
    """
    if name not in SERVICES:
        raise UnknownNameError("carbon service", name, SERVICES)
    base = {} if base_url is None else {"base_url": check_base_url(base_url)}
    if name == "gb":
        if zone is not None:
            raise InputError(f"the zone is {zone!r}, and Great Britain has regions; give --region 1 to 17, or none")
        return GreatBritain(region=region, **base)
    if name == "watttime":
        if zone is None or region is not None:
            raise InputError("WattTime needs a region of the grid; give one such as --zone CAISO_NORTH, no --region")
        return WattTime(zone, **base)
    if zone is None or region is not None:
        raise InputError("Electricity Maps needs a zone and no region; give one such as --zone DE")
    return ElectricityMaps(zone, carbon_scope=carbon_scope, **base)


def _rows(data: Any, keys: set[str], service: str, response: Any) -> list[Row]:
    if not isinstance(data, list) or not all(isinstance(row, dict) and keys <= set(row) for row in data):
        raise MeterError(f"unknown response of {service}: {response!r:.120}; check the base URL")
    return data


def _split_span(begin_s: float, end_s: float, max_span_s: float) -> Iterator[tuple[float, float]]:
    """Split a span at whole multiples of `max_span_s` since 1970, so that overlapping spans share cached requests."""
    while begin_s < end_s:
        end = min((begin_s // max_span_s + 1) * max_span_s, end_s)
        yield begin_s, end
        begin_s = end


def _time_text(unix_s: float) -> str:
    return f"{datetime.fromtimestamp(unix_s, UTC):%Y-%m-%dT%H:%MZ}"


def row_time_s(row: Row, key: str) -> float:
    """Unix seconds of a row."""
    return float(unix_seconds([str(row[key])], "UTC")[0])
