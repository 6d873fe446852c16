"""energy.json of a comparison folder: energy metrics, states of nodes, and curves of power and signals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from kilowait.errors import InputError
from kilowait.evaluation.comparison.result import EnergyResults, PowerCurve, SignalCurve
from kilowait.evaluation.comparison.windows import Windows
from kilowait.evaluation.storage.described_fields import METRICS, NUMBER_OR_NULL
from kilowait.evaluation.storage.folder import null_to_nan
from kilowait.files.fields import Either, Items, Null, Number, Record, Text, check_fields
from kilowait.files.json_file import MAX_JSON_BYTES, parse_json
from kilowait.files.regular_file import read_bytes

__all__ = ["read_energy"]

_EDGES = Items(Number(), 2)
_VALUES = Items(NUMBER_OR_NULL, 1)
_CURVE = Record({"edge_s": _EDGES, "it_w": _VALUES, "facility_w": _VALUES})
_SIGNAL = Record({"name": Text(), "unit": Text(), "description": Text(), "edge_s": _EDGES, "value": _VALUES})
ENERGY = Items(
    Either(
        Null(),
        Record(
            {
                "metrics": Items(Items(METRICS)),
                "states": Items(METRICS),
                "curves": Items(_CURVE),
                "plotted_window": Number(minimum=0, whole=True),
                "signals": Items(_SIGNAL),
                "notes": Items(Text()),
            }
        ),
    )
)
"""One entry per trace; null without a power model."""


def read_energy(
    path: Path, cases: Sequence[Mapping[str, Any]], windows: Sequence[Windows]
) -> list[EnergyResults | None]:
    """The energy results of every trace; an InputError names the file and the field."""
    data = parse_json(read_bytes(path, max_bytes=MAX_JSON_BYTES), path)
    check_fields(data, ENERGY, path, remedy="run it again")
    if len(data) != len(cases):
        raise InputError(f"{path} has the results of {len(data)} traces, and the comparison has {len(cases)}")
    return [
        None if entry is None else _results(entry, len(case["policies"]), len(of_case), f"{path}: [{number}]")
        for number, (entry, case, of_case) in enumerate(zip(data, cases, windows, strict=True))
    ]


def _results(entry: Mapping[str, Any], policies: int, windows: int, where: str) -> EnergyResults:
    lengths = {len(entry["metrics"]), len(entry["states"]), len(entry["curves"]) or policies}
    if lengths != {policies} or any(len(row) != windows for row in entry["metrics"]):
        raise InputError(f"{where} has no metrics, states or curves of {policies} policies in {windows} windows")
    if entry["plotted_window"] >= windows:
        raise InputError(f"{where}: plotted_window is {entry['plotted_window']}; there are {windows} windows")
    for name, series in (("curves", entry["curves"]), ("signals", entry["signals"])):
        for curve in series:
            _check_series(curve, f"{where}: {name}")
    return EnergyResults(
        metrics=tuple(tuple(null_to_nan(cell) for cell in row) for row in entry["metrics"]),
        states=tuple(null_to_nan(row) for row in entry["states"]),
        curves=tuple(
            PowerCurve(**{name: _floats(curve[name]) for name in ("edge_s", "it_w", "facility_w")})
            for curve in entry["curves"]
        ),
        plotted_window=entry["plotted_window"],
        signals=tuple(
            SignalCurve(s["name"], s["unit"], s["description"], _floats(s["edge_s"]), _floats(s["value"]))
            for s in entry["signals"]
        ),
        notes=tuple(entry["notes"]),
    )


def _check_series(curve: Mapping[str, Any], where: str) -> None:
    """Raise unless the edges ascend and every column has one value between two of them."""
    edges = curve["edge_s"]
    if any(after <= before for before, after in pairwise(edges)):
        raise InputError(f"{where}: edge_s is not in ascending order")
    for name in ("it_w", "facility_w", "value"):
        if name in curve and len(curve[name]) != len(edges) - 1:
            raise InputError(f"{where}: {name} has {len(curve[name])} values between {len(edges)} edges")


def _floats(values: Sequence[float | None]) -> tuple[float, ...]:
    """Numbers read back from JSON: null becomes NaN."""
    return tuple(null_to_nan({"": value})[""] for value in values)
