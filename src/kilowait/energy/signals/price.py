"""Reader of electricity prices from CSV, as a Series in a currency per MWh, UTC. Prices may be negative."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike

from kilowait.energy.signals.signal_file import NOT_STATED, chosen_unit, open_signal, plain_columns, times_of, unit_of
from kilowait.energy.signals.units import find_price_unit, price_factor
from kilowait.errors import InputError
from kilowait.series import Gaps, Series


def read_price(
    path: str | PathLike[str],
    *,
    columns: Mapping[str, str] | None = None,
    zone: str | None = None,
    unit: str | None = None,
    location: str | None = None,
    gaps: Gaps = "error",
    longest_s: float | None = None,
) -> Series:
    """Electricity price over time, UTC, from a CSV with a time and a price column; prices are converted to per MWh.

    The unit (``EUR/MWh``, ``$/kWh``) is read from the header or from `unit`; its currency is in ``meta["currency"]``.
    The other arguments are those of `read_carbon`; `location` is only a label.

    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "tiny.csv"
    >>> _ = path.write_text("time,price (EUR/kWh)\\n2022-01-01T00:00Z,0.2\\n2022-01-01T01:00Z,-0.01\\n")
    >>> read_price(path).value.tolist(), read_price(path).unit
    ([200.0, -10.0], 'EUR/MWh')
    """
    file = open_signal(path)
    with file.named():
        if file.is_json():
            raise InputError("prices are read from CSV, but this is JSON")
        table = file.table()
        at = plain_columns(table, columns, find_price_unit)
        file_unit = unit_of(table, at.value, find_price_unit)
        factor, currency = price_factor(chosen_unit(file_unit, unit, price_factor, "unit='EUR/MWh'"))
        meta = {
            "name": "electricity price",
            "location": location or NOT_STATED,
            "currency": currency,
            **file.origin(),
            "format": "csv",
        }
        return Series.from_samples(
            times_of(table, at.time, zone),
            table.numbers(at.value) * factor,
            f"{currency}/MWh",
            meta,
            gaps=gaps,
            longest_s=longest_s,
            unix_zero_s=0.0,
        )
