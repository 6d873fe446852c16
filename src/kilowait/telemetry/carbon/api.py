"""What can be asked of each service, and what its answers hold. Their values are read by `kilowait.energy.signals`."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from os import PathLike
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlencode

from kilowait.energy.signals.readers.timestamps import unix_seconds
from kilowait.errors import InputError, MeterError, UnknownNameError
from kilowait.telemetry.carbon.http import checked_base

__all__ = [
    "SERVICES",
    "TOKEN",
    "ElectricityMaps",
    "GreatBritain",
    "Row",
    "Service",
    "moment_of",
    "service_of",
    "token_from",
]

Row = dict[str, Any]
DAY_S = 86400.0
TOKEN = "ELECTRICITYMAPS_TOKEN"
"""Environment variable with the token of Electricity Maps."""
SERVICES = ("gb", "electricity-maps")
REGIONS = (
    "North Scotland", "South Scotland", "North West England", "North East England", "South Yorkshire",
    "North Wales, Merseyside and Cheshire", "South Wales", "West Midlands", "East Midlands", "East England",
    "South West England", "South England", "London", "South East England", "England", "Scotland", "Wales",
)  # fmt: skip
"""Of Great Britain, by number from 1."""


class Service(Protocol):
    """One place at one service."""

    key: str
    """Of a row: its moment."""

    def past(self, begin_s: float, end_s: float) -> Iterator[tuple[str, float]]:
        """Addresses for a span of time, in pieces the service allows, and the Unix time each piece ends at."""
        ...

    def recent(self, now_s: float) -> str:
        """The address of the last day."""
        ...

    def latest(self) -> str:
        """The address of what holds now."""
        ...

    def rows(self, answer: Any) -> list[Row]:
        """The values in an answer, as the service wrote them, or an error."""
        ...

    def value(self, row: Row) -> float | None:
        """The final value of a row, None where there is none yet."""
        ...

    def document(self, rows: list[Row]) -> dict[str, Any]:
        """Rows of many answers as one, in the service's own shape."""
        ...

    def place(self) -> str:
        """Where, in words."""
        ...


@dataclass(frozen=True)
class GreatBritain:
    """The GB Carbon Intensity API: half-hours, the whole country or one of its regions 1 to 17. No token."""

    base_url: str = "https://api.carbonintensity.org.uk"
    region: int | None = None
    key = "from"
    piece_s = 7 * DAY_S
    """It allows 14 days at a time."""

    def __post_init__(self) -> None:
        if self.region is not None and not 1 <= self.region <= len(REGIONS):
            listed = ", ".join(f"{number} {name}" for number, name in enumerate(REGIONS, 1))
            raise InputError(f"region is {self.region}; there are {listed}")

    def past(self, begin_s: float, end_s: float) -> Iterator[tuple[str, float]]:
        """Weeks."""
        for begin, end in _pieces(begin_s, end_s, self.piece_s):
            span = f"{_moment(begin)}/{_moment(end)}"
            if self.region is None:
                yield f"{self.base_url}/intensity/{span}", end
            else:
                yield f"{self.base_url}/regional/intensity/{span}/regionid/{self.region}", end

    def recent(self, now_s: float) -> str:
        """The last day, up to the end of the half-hour that runs."""
        now = _moment(now_s // 1800 * 1800 + 1800)
        if self.region is None:
            return f"{self.base_url}/intensity/{now}/pt24h"
        return f"{self.base_url}/regional/intensity/{now}/pt24h/regionid/{self.region}"

    def latest(self) -> str:
        """The half-hour that runs."""
        return f"{self.base_url}/" + (
            "intensity" if self.region is None else f"regional/regionid/{self.region}"
        )

    def rows(self, answer: Any) -> list[Row]:
        """Half-hours; of a region they lie one list deeper, beside its name."""
        inner = answer.get("data") if isinstance(answer, dict) else None
        if self.region is not None:
            inner = inner[0] if isinstance(inner, list) and len(inner) == 1 else inner
            if isinstance(inner, dict) and inner.get("regionid") not in (None, self.region):
                raise MeterError(f"region {self.region} was asked for, and {inner['regionid']} came")
            inner = inner.get("data") if isinstance(inner, dict) else None
        return _rows(inner, {"from", "to", "intensity"}, "the GB Carbon Intensity API", answer)

    def value(self, row: Row) -> float | None:
        """The actual value; regions have forecasts alone."""
        part = row["intensity"] if isinstance(row["intensity"], Mapping) else {}
        found = part.get("actual" if self.region is None else "forecast")
        return None if found is None else float(found)

    def document(self, rows: list[Row]) -> dict[str, Any]:
        """As one answer."""
        if self.region is None:
            return {"data": rows}
        return {"data": {"regionid": self.region, "shortname": REGIONS[self.region - 1], "data": rows}}

    def place(self) -> str:
        """Where, in words."""
        return "Great Britain" if self.region is None else REGIONS[self.region - 1]


@dataclass(frozen=True)
class ElectricityMaps:
    """Electricity Maps, version 3: hours of one zone. Needs a token."""

    zone: str
    base_url: str = "https://api.electricitymaps.com"
    scope: str = "life-cycle"
    """Or direct."""
    key = "datetime"
    piece_s = 7 * DAY_S
    """It allows 10 days at a time."""

    def __post_init__(self) -> None:
        if not self.zone or not self.zone.replace("-", "").isalnum():
            raise InputError(f"the zone is {self.zone!r}; write one such as DE, FR or US-CAL-CISO")
        if self.scope not in ("life-cycle", "direct"):
            raise InputError(f"the scope is {self.scope!r}; it must be life-cycle or direct")

    def past(self, begin_s: float, end_s: float) -> Iterator[tuple[str, float]]:
        """Weeks."""
        for begin, end in _pieces(begin_s, end_s, self.piece_s):
            yield self._at("past-range", start=_moment(begin), end=_moment(end)), end

    def recent(self, now_s: float) -> str:
        """The last 24 hours."""
        return self._at("history")

    def latest(self) -> str:
        """The hour that runs."""
        return self._at("latest")

    def _at(self, what: str, **more: str) -> str:
        kind = "lifecycle" if self.scope == "life-cycle" else "direct"
        asked = urlencode({"zone": self.zone, **more, "emissionFactorType": kind})
        return f"{self.base_url}/v3/carbon-intensity/{what}?{asked}"

    def rows(self, answer: Any) -> list[Row]:
        """Hours, of the zone that was asked for: the service may answer for the caller's own instead."""
        inner = answer
        if isinstance(answer, dict) and "carbonIntensity" not in answer:
            inner = answer.get("data", answer.get("history"))
        elif isinstance(answer, dict):
            inner = [answer]
        found = _rows(inner, {"datetime", "carbonIntensity"}, "Electricity Maps", answer)
        for row in [answer, *found]:
            if isinstance(row, dict) and row.get("zone", self.zone) != self.zone:
                raise MeterError(
                    f"zone {self.zone} was asked for, and {row['zone']} came; check the zone's name"
                )
        return found

    def value(self, row: Row) -> float | None:
        """Grams a kWh."""
        return None if row["carbonIntensity"] is None else float(row["carbonIntensity"])

    def document(self, rows: list[Row]) -> dict[str, Any]:
        """As one answer."""
        return {"zone": self.zone, "data": rows}

    def place(self) -> str:
        """Where, in words."""
        return f"zone {self.zone}"


def service_of(
    name: str, *, zone: str | None, region: int | None, scope: str, base_url: str | None
) -> GreatBritain | ElectricityMaps:
    """A service by name, with what it needs to know.

    >>> service_of("gb", zone=None, region=13, scope="life-cycle", base_url=None).place()
    'London'
    """
    if name not in SERVICES:
        raise UnknownNameError("carbon service", name, SERVICES)
    base = {} if base_url is None else {"base_url": checked_base(base_url)}
    if name == "gb":
        if zone is not None:
            raise InputError(
                f"the zone is {zone!r}, and Great Britain has regions; give --region 1 to 17, or none"
            )
        return GreatBritain(region=region, **base)
    if zone is None or region is not None:
        raise InputError("Electricity Maps wants a zone, and no region; give one such as --zone DE")
    return ElectricityMaps(zone, scope=scope, **base)


def token_from(file: str | PathLike[str] | None) -> str:
    """The token of Electricity Maps: the content of `file`, else of the environment variable `TOKEN`."""
    if file is None:
        token, origin = os.environ.get(TOKEN, "").strip(), f"the environment variable {TOKEN}"
    else:
        origin = str(file)
        try:
            token = Path(file).read_text(encoding="utf-8").strip()
        except (OSError, ValueError) as problem:
            raise InputError(
                f"cannot read the token in {origin}: {getattr(problem, 'strerror', problem)}"
            ) from None
    if not token:
        raise InputError(
            f"Electricity Maps needs a token, and {origin} holds none; put it there, or into a file named with "
            "--token-file"
        )
    if not (token.isascii() and token.isprintable() and " " not in token):
        raise InputError(f"what {origin} holds is no token: it must be one word of plain letters and signs")
    return token


def _rows(inner: Any, keys: set[str], who: str, answer: Any) -> list[Row]:
    if not isinstance(inner, list) or not all(isinstance(row, dict) and keys <= set(row) for row in inner):
        raise MeterError(f"the answer of {who} is not understood: {answer!r:.120}; check the base URL")
    return inner


def _pieces(begin_s: float, end_s: float, piece_s: float) -> Iterator[tuple[float, float]]:
    """Cut where whole pieces since 1970 end, so that other spans ask the same questions, and the cache knows them."""
    while begin_s < end_s:
        end = min((begin_s // piece_s + 1) * piece_s, end_s)
        yield begin_s, end
        begin_s = end


def _moment(unix_s: float) -> str:
    return f"{datetime.fromtimestamp(unix_s, UTC):%Y-%m-%dT%H:%MZ}"


def moment_of(row: Row, key: str) -> float:
    """Unix seconds of a row."""
    return float(unix_seconds([str(row[key])], "UTC")[0])
