"""The comparison folder: the logs of every policy in every window, their metrics and the significance results.

================= ===============================================================================================
scenario.toml     the inputs and settings
jobs-N.parquet    the jobs of trace N, from 0, by submission
cases.json        per trace: the machine, the windows, the policies, the cleaning report
segments.parquet  job segments; ``cell`` numbers traces, policies and windows, windows varying fastest
records.parquet   per job and cell: eligible time, if not the submission, and outcome
records.csv       the per-job records of all cells as text, on request
windows.parquet   the metrics, one row per cell: for a data frame
states.parquet    the states of sleeping nodes, if any slept
pieces.parquet    the nodes and GPUs of each segment, on node-level clusters
energy.json       the energy results, if a power model was given
results.json      means with intervals, significance of every pair, sentences, bounds
manifest.json     versions, seeds, sha256 of inputs and of these files, command, date; written last
================= ===============================================================================================
"""

from __future__ import annotations

import json
import math
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from kilowait.errors import InputError
from kilowait.evaluation.comparison.result import Comparison, EnergyResults, PolicyConfig, PowerCurve, SignalCurve
from kilowait.evaluation.comparison.windows import Windows
from kilowait.evaluation.storage.folder import (
    ResultFolder,
    check_files,
    manifest_of_kind,
    null_to_nan,
    plain_json,
    read_json,
    save_folder,
)
from kilowait.evaluation.storage.logs import (
    CLEANING_REPORT,
    CLUSTER,
    COUNT,
    MACHINE,
    METRICS,
    NUMBER_OR_NULL,
    POLICY,
    RECORD_COLUMNS,
    SEGMENT_COLUMNS,
    SETTINGS,
    WORK_COLUMNS,
    check_log,
    machine_from_dict,
    machine_to_dict,
    pieces_from,
    read_jobs,
    read_states_and_allocations,
    rows_of_cell,
    worked_columns,
    write_states_and_allocations,
)
from kilowait.evaluation.storage.record_csv import RECORDS_CSV, write_records_csv
from kilowait.files.documents import MAX_JSON_BYTES, parse_json, read_toml, to_toml
from kilowait.files.fields import Either, Items, Null, Number, Record, Text, Values, check_fields
from kilowait.files.parquet_file import ColumnType, read_parquet_columns
from kilowait.files.regular_file import read_bytes
from kilowait.jobs import ExecutionLog, JobTable

_FILES = ("scenario.toml", "cases.json", "segments.parquet", "records.parquet", "results.json")
_POLICY_FIELDS = (*POLICY.required, *POLICY.optional)
_CASE = Record(
    {
        "trace": Text(),
        "size": COUNT,
        "description": Text(),
        "windows": Items(Items(COUNT, 1), 3, 3),
        "policies": Items(POLICY, 1),
        "runs": Items(SETTINGS, 1),
        "machine": MACHINE,
        "ledger": CLEANING_REPORT,
        "cluster": CLUSTER,
        "notes": Items(Text()),
    }
)
CASES = Record({"cases": Items(_CASE), "cells": Items(Text())})
"""Fields of cases.json."""
RESULTS = Record({}, {"traces": Items(Record({}, {"gpus": Values(METRICS), "lower_bounds": Either(Null(), METRICS)}))})
"""Fields of a comparison's results.json; others are recomputed."""
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
                "plotted_window": COUNT,
                "signals": Items(_SIGNAL),
                "notes": Items(Text()),
            }
        ),
    )
)
"""One entry per trace; null without a power model."""
_SEGMENT = ("start_s", "end_s", "group", "level", "outcome")
COMPRESSION = "zstd"


@dataclass(frozen=True, eq=False)
class ComparisonFolder(ResultFolder):
    """Opened comparison folder."""

    comparisons: tuple[Comparison, ...]
    """One per trace."""
    cells: tuple[str, ...] = ()
    """Content-based names of the cells, in the order of traces, policies and windows, for reuse of finished cells."""


def save_comparison(
    path: str | PathLike[str],
    comparisons: Sequence[Comparison],
    *,
    scenario: Mapping[str, Any],
    results: Mapping[str, Any],
    manifest: Mapping[str, Any] | None = None,
    cells: Sequence[str] = (),
    csv: bool = False,
    force: bool = False,
) -> Path:
    """Write a comparison folder atomically; with `csv` the per-job records of all runs also as CSV."""

    def fill(folder: Path) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        (folder / "scenario.toml").write_text(to_toml(scenario), encoding="utf-8")
        for number, comparison in enumerate(comparisons):
            comparison.windows.jobs.to_parquet(folder / f"jobs-{number}.parquet")
        cases = {"cases": [_case(comparison) for comparison in comparisons], "cells": list(cells)}
        (folder / "cases.json").write_text(json.dumps(cases) + "\n", encoding="utf-8")
        logs = [comparison.logs(policy, window) for comparison, policy, window in _cells(comparisons)]
        pq.write_table(_segments(logs), folder / "segments.parquet", compression=COMPRESSION)
        pq.write_table(_records(logs), folder / "records.parquet", compression=COMPRESSION)
        if csv:
            names = [
                {"trace": comparison.trace, "policy": comparison.policies[number].label, "window": str(window)}
                for comparison, number, window in _cells(comparisons)
            ]
            write_records_csv(list(zip(names, logs, strict=True)), folder / RECORDS_CSV)
        pq.write_table(pa.Table.from_pylist(list(_rows(comparisons))), folder / "windows.parquet")
        write_states_and_allocations(logs, folder)
        if any(comparison.energy is not None for comparison in comparisons):
            energy = [None if comparison.energy is None else asdict(comparison.energy) for comparison in comparisons]
            (folder / "energy.json").write_text(plain_json(energy) + "\n", encoding="utf-8")
        (folder / "results.json").write_text(plain_json(results) + "\n", encoding="utf-8")

    return save_folder(path, fill, kind="comparison", manifest=manifest, force=force)


def _case(comparison: Comparison) -> dict[str, Any]:
    windows = comparison.windows
    return {
        "trace": comparison.trace,
        "size": comparison.size,
        "description": windows.description,
        "windows": [windows.first.tolist(), windows.size.tolist(), windows.warmup.tolist()],
        "policies": [asdict(policy) for policy in comparison.policies],
        "runs": [dict(comparison.logs(number, 0).run) for number in range(len(comparison.policies))],
        "machine": machine_to_dict(comparison.logs(0, 0)),
        "ledger": comparison.cleaning_report,
        "cluster": comparison.cluster,
        "notes": list(comparison.notes),
    }


def _cells(comparisons: Sequence[Comparison]) -> Iterator[tuple[Comparison, int, int]]:
    for comparison in comparisons:
        for policy in range(len(comparison.policies)):
            for window in range(len(comparison.windows)):
                yield comparison, policy, window


def _segments(logs: Sequence[ExecutionLog]) -> Any:
    import pyarrow as pa

    columns = {
        "cell": np.repeat(np.arange(len(logs), dtype=np.int32), [len(log) for log in logs]),
        "row": np.concatenate([log.job for log in logs]).astype(np.int32),
    }
    for name in _SEGMENT:
        columns[name] = np.concatenate([getattr(log, name) for log in logs])
    return pa.table({**columns, **worked_columns(logs)})


def _records(logs: Sequence[ExecutionLog]) -> Any:
    import pyarrow as pa

    return pa.table(
        {
            "cell": np.repeat(np.arange(len(logs), dtype=np.int32), [len(log.jobs_table) for log in logs]),
            # Null if it is the submission, which takes no space; NaN for a job that never joined the queue.
            "eligible_s": pa.array(
                np.concatenate([log.eligible_s for log in logs]),
                mask=np.concatenate([log.eligible_s == log.jobs_table["submit_s"] for log in logs]),
                from_pandas=False,
            ),
            "outcome": np.concatenate([log.job_outcome for log in logs]),
        }
    )


def _rows(comparisons: Sequence[Comparison]) -> Iterator[dict[str, Any]]:
    for comparison, number, window in _cells(comparisons):
        policy, label = comparison.policies[number], comparison.labels[number]
        yield {
            "trace": comparison.trace,
            "policy": policy.policy,
            "backfill": str(policy.backfill),
            "kind": policy.kind,
            "label": label,
            "window": window,
            "first_job": int(comparison.windows.first[window]),
            "warmup_jobs": int(comparison.windows.warmup[window]),
            **{name: float(value) for name, value in comparison.table[number][window].items()},
        }


def load_comparison(path: str | PathLike[str]) -> ComparisonFolder:
    """Open a folder written by `save_comparison`, with bit-identical logs.

    A foreign, incomplete or modified folder raises an InputError with the reason.
    """
    folder = Path(path)
    manifest = manifest_of_kind(folder, "comparison", "kilowait compare", _FILES)
    try:
        scenario = read_toml(folder / "scenario.toml", remedy="run it again")
        stored = read_json(folder / "cases.json", folder, CASES, constants=True)
        results = read_json(folder / "results.json", folder, RESULTS)
        comparisons = tuple(_load_comparisons(folder, manifest, stored["cases"], results))
    except OSError as problem:
        raise InputError(f"{folder} cannot be opened: {problem}") from None
    return ComparisonFolder(folder, scenario, manifest, results, comparisons, tuple(stored["cells"]))


def _load_comparisons(
    folder: Path, manifest: Mapping[str, Any], cases: Sequence[Mapping[str, Any]], results: Mapping[str, Any]
) -> Iterator[Comparison]:
    check_files(manifest, [f"jobs-{number}.parquet" for number in range(len(cases))], folder)
    path = folder / "cases.json"
    traces = results.get("traces") or [{}] * len(cases)
    if len(traces) != len(cases):
        raise InputError(f"{folder / 'results.json'} has the results of {len(traces)} traces, and {path} {len(cases)}")
    all_windows = [
        _windows(case, read_jobs(folder / f"jobs-{number}.parquet"), path) for number, case in enumerate(cases)
    ]
    sizes = [
        (windows.warmup + windows.size).tolist() * len(case["policies"])
        for windows, case in zip(all_windows, cases, strict=True)
    ]
    stored = _StoredColumns(folder, manifest["files"], [jobs for of_case in sizes for jobs in of_case])
    energy = _read_energy(folder / "energy.json", cases, all_windows) if "energy.json" in manifest["files"] else None
    cell = 0
    for number, (case, windows) in enumerate(zip(cases, all_windows, strict=True)):
        policies = tuple(
            PolicyConfig(**{name: policy[name] for name in _POLICY_FIELDS if name in policy})
            for policy in case["policies"]
        )
        yield Comparison(
            trace=case["trace"],
            size=case["size"],
            windows=windows,
            policies=policies,
            logs=_StoredLogs(windows, case, stored, cell, path),
            cleaning_report=case["ledger"],
            cluster=case["cluster"],
            notes=tuple(case["notes"]),
            energy=None if energy is None else energy[number],
            gpus={label: null_to_nan(row) for label, row in traces[number].get("gpus", {}).items()},
        )
        cell += len(policies) * len(windows)


def _windows(case: Mapping[str, Any], jobs: JobTable, path: Path) -> Windows:
    """The windows of one trace; an InputError that names `path` if they are not windows of its jobs."""
    if len({len(column) for column in case["windows"]}) > 1:
        raise InputError(f"{path}: the windows of {case['trace']!r} have different numbers of starts and sizes")
    first, size, warmup = (np.array(column, np.int64) for column in case["windows"])
    if (size < 1).any() or (warmup > first).any() or (first > len(jobs)).any() or (first + size > len(jobs)).any():
        raise InputError(f"{path}: the windows of {case['trace']!r} are not windows of its {len(jobs):,} jobs")
    if jobs.order is not None:
        raise InputError(f"{path}: the jobs of {case['trace']!r} are not in the order of their submission")
    if len(case["runs"]) != len(case["policies"]):
        raise InputError(f"{path}: {len(case['policies'])} policies have the settings of {len(case['runs'])} runs")
    return Windows(jobs, first, size, warmup, case["description"])


class _StoredColumns:
    """The columns of all logs of a comparison, with the rows of each cell."""

    def __init__(self, folder: Path, files: Container[str], jobs_of_cell: Sequence[int]) -> None:
        cells = len(jobs_of_cell)
        cell = ColumnType(np.int32, minimum=0, maximum=cells - 1)
        types = {"cell": cell, "row": ColumnType(np.int64, minimum=0), **SEGMENT_COLUMNS}
        self.segments = read_parquet_columns(folder / "segments.parquet", types, optional=WORK_COLUMNS)
        optional_time = replace(RECORD_COLUMNS["eligible_s"], null=True)
        types = {"cell": cell, **RECORD_COLUMNS, "eligible_s": optional_time}
        self.records = read_parquet_columns(folder / "records.parquet", types, rows=sum(jobs_of_cell))
        for columns in (self.segments, self.records):
            if (np.diff(columns["cell"]) < 0).any():
                raise InputError(f"{columns.source}: the cells are not in order")
        if (np.bincount(self.records["cell"], minlength=cells) != np.array(jobs_of_cell)).any():
            raise InputError(f"{self.records.source} has other numbers of records than the windows have jobs")
        rows = np.array(jobs_of_cell)[self.segments["cell"]]
        if (self.segments["row"] >= rows).any():
            raise InputError(f"{self.segments.source} has segments of jobs that are not in their windows")
        self.states, self.pieces = read_states_and_allocations(folder, files, cells)


class _StoredLogs:
    """The logs of one trace, extracted from the folder's columns on demand."""

    def __init__(
        self, windows: Windows, case: Mapping[str, Any], stored: _StoredColumns, cell: int, source: Path
    ) -> None:
        self._windows, self._case, self._stored, self._cell, self._source = windows, case, stored, cell, source
        self._machine = machine_from_dict(case["machine"], source)
        for policy in range(len(case["policies"])):  # every log is checked before any is used
            for window in range(len(windows)):
                check_log(self(policy, window), source.parent)

    def __call__(self, policy: int, window: int) -> ExecutionLog:
        stored = self._stored
        cell = self._cell + policy * len(self._windows) + window
        jobs = self._windows[window].jobs
        of_segments, of_records = rows_of_cell(stored.segments, cell), rows_of_cell(stored.records, cell)
        worked = {name: stored.segments[name][of_segments] for name in WORK_COLUMNS if name in stored.segments}
        columns: dict[str, Any] = {name: stored.segments[name][of_segments] for name in _SEGMENT}
        return ExecutionLog(
            jobs_table=jobs,
            job=stored.segments["row"][of_segments],
            **columns,
            eligible_s=np.where(
                stored.records.missing["eligible_s"][of_records],
                jobs["submit_s"],
                stored.records["eligible_s"][of_records],
            ),
            job_outcome=stored.records["outcome"][of_records],
            run=self._case["runs"][policy],
            states=stored.states.get(cell),
            pieces=pieces_from(stored.pieces.get(cell), worked),
            **self._machine,
        )


def _read_energy(
    path: Path, cases: Sequence[Mapping[str, Any]], windows: Sequence[Windows]
) -> list[EnergyResults | None]:
    """The energy results of every trace; an InputError names the file and the field."""
    data = parse_json(read_bytes(path, max_bytes=MAX_JSON_BYTES), path)
    check_fields(data, ENERGY, path, remedy="run it again")
    if len(data) != len(cases):
        raise InputError(f"{path} has the results of {len(data)} traces, and the comparison has {len(cases)}")
    return [
        None if entry is None else _energy_results(entry, len(case["policies"]), len(of_case), f"{path}: [{number}]")
        for number, (entry, case, of_case) in enumerate(zip(data, cases, windows, strict=True))
    ]


def _energy_results(entry: Mapping[str, Any], policies: int, windows: int, where: str) -> EnergyResults:
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
    return tuple(math.nan if value is None else value for value in values)
