"""Recorded forecasts, from a table of issue time, target time and value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike

import numpy as np

from kilowait.energy.signals.forecast.base import Floats, Forecast, positive_s
from kilowait.energy.signals.readers.csv import times_of
from kilowait.energy.signals.readers.files import open_signal
from kilowait.energy.signals.readers.units import canonical_unit, find_intensity_unit, find_price_unit
from kilowait.errors import InputError
from kilowait.series import Series

__all__ = ["recorded_forecast"]


def recorded_forecast(
    path: str | PathLike[str],
    *,
    columns: Mapping[str, str] | None = None,
    zone: str | None = None,
    unit: str | None = None,
    step_s: float | None = None,
    horizon_s: float | None = None,
    unix_start_s: float = 0.0,
) -> Forecast:
    """Recorded forecasts from a CSV with the columns ``issue_time``, ``target_time`` and ``value``.

    `columns` maps these names to those of the file. The unit is read from the name of the value column or from `unit`;
    carbon intensity is converted to g/kWh, prices to per MWh. A value is valid until the next one of its issue, the
    first one from the issue time on. `unix_start_s` is the Unix time of second 0 of the log. By default `horizon_s` is
    the span that every issue covers until the next issue.

    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "forecasts.csv"
    >>> _ = path.write_text("issue_time,target_time,value\\n0,0,5\\n0,3600,7\\n3600,3600,8\\n3600,7200,9\\n")
    >>> forecast = recorded_forecast(path, unit="g/kWh")
    >>> forecast.issued(3599).value.tolist(), forecast.issued(3600).value.tolist(), forecast.horizon_s
    ([5.0, 7.0], [8.0], 3600.0)
    """
    file = open_signal(path)
    with file.named():
        table, names = (file.table(), {"issue_time": "issue_time", "target_time": "target_time", "value": "value"})
        names.update(columns or {})
        if len(names) > 3:
            raise InputError(f"columns has the keys {sorted(names)}; they are issue_time, target_time and value")
        issue, target, column = (table.index(names[key]) for key in ("issue_time", "target_time", "value"))
        file_unit = find_intensity_unit(table.header[column]) or find_price_unit(table.header[column])
        if file_unit is None and unit is None:
            raise InputError("the file names no unit; give it, such as unit='g/kWh' or unit='EUR/MWh'")
        if file_unit is not None and unit is not None and canonical_unit(file_unit) != canonical_unit(unit):
            raise InputError(f"mixed units: the file is in {file_unit}, but unit={unit!r} was given; leave unit out")
        factor, unit_name = canonical_unit(file_unit or unit or "")
        issue_s, target_s = times_of(table, issue, zone), times_of(table, target, zone)
        value = table.numbers(column) * factor
        issues = np.unique(issue_s)
        series = []
        for at in issues.tolist():
            rows = issue_s == at
            with_first = Series.from_samples(
                target_s[rows], value[rows], unit_name, file.origin(), step_s=step_s, unix_zero_s=0.0
            )
            series.append(_from_issue_on(with_first, at).shifted(-unix_start_s))
        covered = np.array([one.end_s for one in series]) + unix_start_s - np.append(issues[1:], issues[-1])
        horizon = float(covered.min()) if horizon_s is None else positive_s(horizon_s, "horizon_s")
        if horizon <= 0:
            raise InputError("an issue ends before the next one begins; give horizon_s, or a file with longer issues")
        return _RecordedForecast(horizon, issues - unix_start_s, tuple(series), file.name)


@dataclass(frozen=True, eq=False)
class _RecordedForecast(Forecast):
    horizon_s: float
    issue_s: Floats
    series: tuple[Series, ...]
    source: str

    def describe(self) -> str:
        return f"forecasts of {self.source} ({len(self.issue_s)} issues)"

    def _issue_time_s(self, at: Floats) -> Floats:
        last = np.searchsorted(self.issue_s, at, side="right") - 1
        if (last < 0).any():
            moment = self.series[0].moment
            raise InputError(
                f"no forecast of {self.source} was issued by {moment(float(at.min()))}; the first was issued at "
                f"{moment(float(self.issue_s[0]))}: give a file that starts earlier"
            )
        return self.issue_s[last]

    def _issued_series(self, issue_s: float, until_s: float) -> Series:
        series = self.series[int(np.searchsorted(self.issue_s, issue_s))]
        series.require(issue_s, until_s, f"a forecast issued at {series.moment(issue_s)}")
        return series


def _from_issue_on(series: Series, issue_s: float) -> Series:
    if series.end_s <= issue_s:
        raise InputError(f"the forecast issued at {series.moment(issue_s)} has no later target time")
    if series.start_s <= issue_s:
        return series.between(issue_s, series.end_s)
    edge = series.edge_s.copy()
    edge[0] = issue_s
    return Series(edge, series.value, series.unit, series.meta, series.unix_zero_s)
