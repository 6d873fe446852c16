"""Reader of F-DATA: jobs of Fugaku, 2021 to 2024, with their energy, power and frequency."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from kilowait.traces.clean import Floats, RawColumns
from kilowait.traces.cleaning_report import CleaningReport
from kilowait.traces.formats.cell_values import job_numbers
from kilowait.traces.formats.table_rows import table_rows
from kilowait.traces.trace_input import TraceInput

_USED = (
    *"jid usr jnam cnumr cnumat nnumr nnuma adt sdt edt elpl duration econ avgpcon freq_alloc ec".split(),
    "exit state",
)
_UNITS = {"Wh": 3600.0, "J": 1.0}
_LEAST_W = 1.0
"""Jobs with less power say nothing about the units."""
_TOLERANCE = 1.5
"""Energy and power x time agree within this factor."""


def read_fdata(source: TraceInput, report: CleaningReport) -> tuple[RawColumns, dict[str, Any]]:
    """Read the jobs of a month; whole nodes are allocated."""
    rows = table_rows(source, report, "a table of one month", _USED)
    rows.need("jid", "adt", "sdt", "edt", "duration", "elpl", "nnumr", "nnuma")
    submit, start, end = (rows.moments(name) for name in ("adt", "sdt", "edt"))
    runtime, nodes = rows.numbers("duration"), rows.numbers("nnuma")
    ids, names = job_numbers([_number_in(name) for name in rows.texts("jid")], rows.line, report)
    draft = RawColumns(rows.line, {"job_id": ids, "submit_s": submit})
    if names is not None:
        draft.words["log_id"] = names
    requested = ~(nodes > 0) & (rows.numbers("nnumr") > 0)
    unknown = np.isnan(runtime) & ~np.isnan(end - start)
    draft.never_ran["it has no start"] = np.isnan(start) & ~(runtime > 0)
    instead = requested & ~draft.never_ran["it has no start"]
    report.add_rows("corrected", "nnuma is 0 or unknown: nnumr used", instead, rows.line)
    report.add_rows("corrected", "duration unknown: edt - sdt used", unknown, rows.line)
    runtime = np.where(unknown, end - start, runtime)
    nodes = np.where(requested, rows.numbers("nnumr"), nodes)
    draft.numbers |= {
        "runtime_s": runtime,
        "wait_s": start - submit,
        "nodes": nodes,
        "estimate_s": rows.numbers("elpl"),
    }
    if "cnumat" in rows:
        cores = rows.numbers("cnumat")
        draft.numbers["cores"] = np.where(cores > 0, cores, rows.numbers("cnumr") if "cnumr" in rows else np.nan)
    if "exit state" in rows:
        draft.numbers["status"] = rows.statuses("exit state")
    elif "ec" in rows:
        code = rows.numbers("ec")
        draft.numbers["status"] = np.where(np.isnan(code), -1.0, (code == 0).astype(np.float64))
    draft.words |= rows.labels(user="usr", name="jnam")
    if "econ" in rows and "avgpcon" in rows:
        _energy(draft, rows.numbers("econ"), rows.numbers("avgpcon"), report)
    if "freq_alloc" in rows:
        places, kinds = rows.kinds("freq_alloc")
        counts = np.bincount(places, minlength=len(kinds)).tolist()
        listed = ", ".join(f"{kind} MHz: {count:,}" for kind, count in zip(kinds, counts, strict=True) if kind)
        if listed:
            known = sum(count for kind, count in zip(kinds, counts, strict=True) if kind)
            report.add("note", f"freq_alloc left out, since jobs have no column of their frequency ({listed})", known)
    report.add("note", "times without a zone are read as UTC")
    return draft, {"unix_start_s": 0, "time_zone": "UTC (assumed)"}


def _number_in(name: str) -> str:
    """The number at the end of an id such as jid_7, else the whole id."""
    match = re.search(r"(\d{1,15})$", name)
    return match.group(1) if match else name


def _energy(draft: RawColumns, econ: Floats, power: Floats, report: CleaningReport) -> None:
    """Energy and mean power, in the units in which they agree: the published list of columns gives no units."""
    runtime, nodes = draft.numbers["runtime_s"], draft.numbers["nodes"]
    known = (econ > 0) & (power >= _LEAST_W) & (runtime >= 1) & (nodes >= 1)
    decisive = known & (nodes > 1) if (known & (nodes > 1)).any() else known
    if not decisive.any():
        report.add("note", "econ and avgpcon have no positive values: energy and power unknown")
        return
    agreement: dict[tuple[str, str], float] = {}
    job_ratio = econ[decisive] / (power[decisive] * runtime[decisive])
    for unit, factor in _UNITS.items():
        for extent, ratios in (("the job", job_ratio), ("a node", job_ratio / nodes[decisive])):
            agreement[unit, extent] = float(np.median(ratios * factor))
    (unit, extent), ratio = min(agreement.items(), key=lambda item: abs(np.log(item[1])))
    if not 1 / _TOLERANCE <= ratio <= _TOLERANCE:
        reason = f"econ does not agree with avgpcon x duration in Wh or J (median ratio {ratio:.3g}): both left out"
        report.add_rows("note", reason, known, draft.line)
        return
    draft.numbers["energy_j"] = np.where(econ >= 0, econ * _UNITS[unit], np.nan)
    draft.numbers["power_w"] = np.where(power >= 0, power * (nodes if extent == "a node" else 1.0), np.nan)
    reason = (
        f"econ read in {unit} and avgpcon as W of {extent}: the energy is then {ratio:.3f} x power x duration (median)"
    )
    report.add_rows("note", reason, known, draft.line)
