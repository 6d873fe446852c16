"""The comparison folder: the logs of every policy in every window, their metrics and the significance results.

================= ===============================================================================================
scenario.toml     the inputs and settings
jobs-N.parquet    the jobs of trace N, from 0, by submission
cases.json        per trace: the machine, the windows, the policies, the cleaning report
segments.parquet  job segments; ``cell`` numbers traces, policies and windows, windows varying fastest
records.parquet   per job and cell: eligible time, if not the submission, and outcome
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
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from kilowait.errors import InputError, KilowaitError
from kilowait.evaluation.comparison.result import Comparison, EnergyResults, PolicyConfig, PowerCurve, SignalCurve
from kilowait.evaluation.comparison.windows import Windows
from kilowait.evaluation.storage.allocations import WORK_COLUMNS, pieces_from, read_pieces, worked_columns, write_pieces
from kilowait.evaluation.storage.folder import checked_manifest, null_to_nan, plain_json, read_json, save_folder
from kilowait.evaluation.storage.run import machine_from_dict, machine_to_dict, read_node_states, write_node_states
from kilowait.evaluation.storage.toml_writer import to_toml
from kilowait.jobs import ExecutionLog, JobTable, NodeStates

__all__ = ["ComparisonFolder", "load_comparison", "save_comparison"]

_SEGMENT = ("start_s", "end_s", "group", "level", "outcome")
COMPRESSION = "zstd"


@dataclass(frozen=True, eq=False)
class ComparisonFolder:
    """Opened comparison folder."""

    path: Path
    scenario: dict[str, Any]
    manifest: dict[str, Any]
    results: dict[str, Any]
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
    force: bool = False,
) -> Path:
    """Write a comparison folder atomically."""

    def fill(folder: Path) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        (folder / "scenario.toml").write_text(to_toml(scenario), encoding="utf-8")
        for number, comparison in enumerate(comparisons):
            comparison.windows.jobs.to_parquet(folder / f"jobs-{number}.parquet")
        cases = {"cases": [_case(comparison) for comparison in comparisons], "cells": list(cells)}
        (folder / "cases.json").write_text(json.dumps(cases) + "\n", encoding="utf-8")
        pq.write_table(_segments(comparisons), folder / "segments.parquet", compression=COMPRESSION)
        pq.write_table(_records(comparisons), folder / "records.parquet", compression=COMPRESSION)
        pq.write_table(pa.Table.from_pylist(list(_rows(comparisons))), folder / "windows.parquet")
        states = [comparison.logs(policy, window).states for comparison, policy, window in _cells(comparisons)]
        if any(item is not None for item in states):
            write_node_states(states, folder / "states.parquet")
        pieces = [comparison.logs(policy, window).pieces for comparison, policy, window in _cells(comparisons)]
        if any(item is not None for item in pieces):
            write_pieces(pieces, folder / "pieces.parquet")
        if any(comparison.energy is not None for comparison in comparisons):
            energy = [None if comparison.energy is None else asdict(comparison.energy) for comparison in comparisons]
            (folder / "energy.json").write_text(plain_json(energy) + "\n", encoding="utf-8")
        (folder / "results.json").write_text(plain_json(results) + "\n", encoding="utf-8")

    return save_folder(path, fill, kind="comparison", manifest=manifest, force=force)


def _case(comparison: Comparison) -> dict[str, Any]:
    windows = comparison.windows
    return {
        "trace": comparison.trace,
        "nodes": comparison.nodes,
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


def _segments(comparisons: Sequence[Comparison]) -> Any:
    import pyarrow as pa

    logs = [comparison.logs(policy, window) for comparison, policy, window in _cells(comparisons)]
    columns = {
        "cell": np.repeat(np.arange(len(logs), dtype=np.int32), [len(log) for log in logs]),
        "row": np.concatenate([log.job for log in logs]).astype(np.int32),
    }
    for name in _SEGMENT:
        columns[name] = np.concatenate([getattr(log, name) for log in logs])
    return pa.table({**columns, **worked_columns(logs)})


def _records(comparisons: Sequence[Comparison]) -> Any:
    import pyarrow as pa

    logs = [comparison.logs(policy, window) for comparison, policy, window in _cells(comparisons)]
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
        policy = comparison.policies[number]
        yield {
            "trace": comparison.trace,
            "policy": policy.policy,
            "backfill": str(policy.backfill),
            "kind": policy.kind,
            "label": policy.label,
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
    manifest = checked_manifest(folder)
    if manifest.get("kind") != "comparison":
        raise InputError(
            f"{folder} holds a {manifest.get('kind')!r}, not a comparison; write one with kilowait compare"
        )
    try:
        scenario = tomllib.loads((folder / "scenario.toml").read_text(encoding="utf-8"))
        cases = read_json(folder / "cases.json", folder)
        results = read_json(folder / "results.json", folder)
        comparisons = tuple(_load_comparisons(folder, cases["cases"], results))
    except (KilowaitError, OSError, ValueError, KeyError, TypeError, IndexError) as problem:
        raise InputError(f"{folder} cannot be opened: {problem}") from None
    return ComparisonFolder(folder, scenario, manifest, results, comparisons, tuple(cases["cells"]))


def _load_comparisons(
    folder: Path, cases: Sequence[Mapping[str, Any]], results: Mapping[str, Any]
) -> Iterator[Comparison]:
    import pyarrow.parquet as pq

    trace_results = results.get("traces") or [{}] * len(cases)

    segments = _arrays(pq.read_table(folder / "segments.parquet"))
    records = pq.read_table(folder / "records.parquet")
    eligible_s = records["eligible_s"].combine_chunks()
    job_records = {
        "cell": records["cell"].to_numpy(),
        "outcome": records["outcome"].to_numpy(),
        "at_submission": eligible_s.is_null().to_numpy(zero_copy_only=False),
        "eligible_s": eligible_s.fill_null(0.0).to_numpy(),
    }
    states, pieces = read_node_states(folder / "states.parquet"), read_pieces(folder / "pieces.parquet")
    cell = 0
    for number, case in enumerate(cases):
        jobs = JobTable.from_parquet(folder / f"jobs-{number}.parquet")
        first, size, warmup = (np.array(column, np.int64) for column in case["windows"])
        windows = Windows(jobs, first, size, warmup, case["description"])
        policies = tuple(PolicyConfig(**policy) for policy in case["policies"])
        yield Comparison(
            trace=case["trace"],
            nodes=case["nodes"],
            windows=windows,
            policies=policies,
            logs=_StoredLogs(windows, case, segments, job_records, states, pieces, cell),
            cleaning_report=case["ledger"],
            cluster=case["cluster"],
            notes=tuple(case["notes"]),
            energy=_energy(folder, number),
            gpus={label: null_to_nan(row) for label, row in trace_results[number].get("gpus", {}).items()},
        )
        cell += len(policies) * len(windows)


def _energy(folder: Path, number: int) -> EnergyResults | None:
    path = folder / "energy.json"
    if not path.exists():
        return None
    data = json.loads(path.read_text(encoding="utf-8"))[number]
    if data is None:
        return None
    return EnergyResults(
        metrics=tuple(tuple(null_to_nan(cell) for cell in row) for row in data["metrics"]),
        states=tuple(null_to_nan(row) for row in data["states"]),
        curves=tuple(PowerCurve(**{key: tuple(values) for key, values in curve.items()}) for curve in data["curves"]),
        plotted_window=data["plotted_window"],
        signals=tuple(
            SignalCurve(s["name"], s["unit"], s["description"], tuple(s["edge_s"]), tuple(s["value"]))
            for s in data["signals"]
        ),
        notes=tuple(data["notes"]),
    )


def _arrays(table: Any) -> dict[str, Any]:
    return {name: table[name].to_numpy() for name in table.column_names}


class _StoredLogs:
    """The logs of one trace, extracted from the folder's columns on demand."""

    def __init__(
        self,
        windows: Windows,
        case: Mapping[str, Any],
        segments: Mapping[str, Any],
        records: Mapping[str, Any],
        states: Mapping[int, NodeStates],
        pieces: Mapping[int, dict[str, Any]],
        cell: int,
    ) -> None:
        self._windows, self._case, self._cell = windows, case, cell
        self._segments, self._records, self._states, self._pieces = segments, records, states, pieces

    def __call__(self, policy: int, window: int) -> ExecutionLog:
        cell = self._cell + policy * len(self._windows) + window
        jobs = self._windows[window].jobs
        low, high = np.searchsorted(self._segments["cell"], (cell, cell + 1))
        from_, to = np.searchsorted(self._records["cell"], (cell, cell + 1))
        if to - from_ != len(jobs):
            raise InputError(f"the comparison has {to - from_} records for a window of {len(jobs)} jobs")
        return ExecutionLog(
            jobs_table=jobs,
            job=self._segments["row"][low:high].astype(np.int64),
            **{name: self._segments[name][low:high] for name in _SEGMENT},
            eligible_s=np.where(
                self._records["at_submission"][from_:to], jobs["submit_s"], self._records["eligible_s"][from_:to]
            ),
            job_outcome=self._records["outcome"][from_:to],
            run=self._case["runs"][policy],
            states=self._states.get(cell),
            pieces=pieces_from(
                self._pieces.get(cell),
                {name: self._segments[name][low:high] for name in WORK_COLUMNS if name in self._segments},
            ),
            **machine_from_dict(self._case["machine"]),
        )
