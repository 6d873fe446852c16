"""The comparison folder: everything that happened under every contender in every window, and what was made of it.

================= ===============================================================================================
scenario.toml     what was compared
jobs-N.parquet    the jobs of trace N, from 0, by submission
cases.json        of each trace: the machine, the windows, the contenders, the ledger
segments.parquet  what ran when; ``cell`` counts traces, contenders and windows, the last fastest
records.parquet   of each job of each cell: when it joined the queue, where not at submission, and how it came out
windows.parquet   the metrics of each cell, one row each: for a data frame
states.parquet    what sleeping nodes did, where some slept
pieces.parquet    where segments lay, node by node and GPU by GPU, on machines whose nodes are placed
energy.json       what the runs drew, where a power model was given
results.json      means with intervals, every pair with its verdict, sentences, limits
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
from kilowait.evaluation.comparison.result import (
    Comparison,
    EnergyResults,
    PolicyConfig,
    PowerCurve,
    SignalCurve,
)
from kilowait.evaluation.comparison.windows import Windows
from kilowait.evaluation.storage.allocations import (
    WORKED,
    pieces_from,
    read_pieces,
    worked_columns,
    write_pieces,
)
from kilowait.evaluation.storage.folder import (
    checked_manifest,
    known,
    plain_json,
    read_json,
    save_folder,
)
from kilowait.evaluation.storage.run import (
    machine_from,
    machine_of,
    read_states,
    write_states,
)
from kilowait.evaluation.storage.toml import to_toml
from kilowait.jobs import ExecutionLog, JobTable, NodeStates

__all__ = ["ComparisonFolder", "load_comparison", "save_comparison"]

_SEGMENT = ("start_s", "end_s", "group", "level", "outcome")
PACKED = "zstd"


@dataclass(frozen=True, eq=False)
class ComparisonFolder:
    """A comparison folder, opened."""

    path: Path
    scenario: dict[str, Any]
    manifest: dict[str, Any]
    results: dict[str, Any]
    contests: tuple[Comparison, ...]
    """One for each trace."""
    cells: tuple[str, ...] = ()
    """Names of the cells, by content, in the order of traces, contenders and windows; by them they can be reused."""


def save_comparison(
    path: str | PathLike[str],
    contests: Sequence[Comparison],
    *,
    scenario: Mapping[str, Any],
    results: Mapping[str, Any],
    manifest: Mapping[str, Any] | None = None,
    cells: Sequence[str] = (),
    force: bool = False,
) -> Path:
    """Write a comparison folder, whole or not at all."""

    def fill(folder: Path) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        (folder / "scenario.toml").write_text(to_toml(scenario), encoding="utf-8")
        for number, contest in enumerate(contests):
            contest.windows.jobs.to_parquet(folder / f"jobs-{number}.parquet")
        cases = {"cases": [_case(contest) for contest in contests], "cells": list(cells)}
        (folder / "cases.json").write_text(json.dumps(cases) + "\n", encoding="utf-8")
        pq.write_table(_segments(contests), folder / "segments.parquet", compression=PACKED)
        pq.write_table(_records(contests), folder / "records.parquet", compression=PACKED)
        pq.write_table(pa.Table.from_pylist(list(_rows(contests))), folder / "windows.parquet")
        states = [contest.logs(who, window).states for contest, who, window in _cells(contests)]
        if any(one is not None for one in states):
            write_states(states, folder / "states.parquet")
        pieces = [contest.logs(who, window).pieces for contest, who, window in _cells(contests)]
        if any(one is not None for one in pieces):
            write_pieces(pieces, folder / "pieces.parquet")
        if any(contest.energy is not None for contest in contests):
            drew = [None if contest.energy is None else asdict(contest.energy) for contest in contests]
            (folder / "energy.json").write_text(plain_json(drew) + "\n", encoding="utf-8")
        (folder / "results.json").write_text(plain_json(results) + "\n", encoding="utf-8")

    return save_folder(path, fill, kind="comparison", manifest=manifest, force=force)


def _case(contest: Comparison) -> dict[str, Any]:
    windows = contest.windows
    return {
        "trace": contest.trace,
        "nodes": contest.nodes,
        "words": windows.words,
        "windows": [windows.first.tolist(), windows.size.tolist(), windows.warmup.tolist()],
        "contenders": [asdict(contender) for contender in contest.contenders],
        "runs": [dict(contest.logs(number, 0).run) for number in range(len(contest.contenders))],
        "machine": machine_of(contest.logs(0, 0)),
        "ledger": contest.ledger,
        "cluster": contest.cluster,
        "notes": list(contest.notes),
    }


def _cells(contests: Sequence[Comparison]) -> Iterator[tuple[Comparison, int, int]]:
    for contest in contests:
        for contender in range(len(contest.contenders)):
            for window in range(len(contest.windows)):
                yield contest, contender, window


def _segments(contests: Sequence[Comparison]) -> Any:
    import pyarrow as pa

    logs = [contest.logs(contender, window) for contest, contender, window in _cells(contests)]
    columns = {
        "cell": np.repeat(np.arange(len(logs), dtype=np.int32), [len(log) for log in logs]),
        "row": np.concatenate([log.job for log in logs]).astype(np.int32),
    }
    for name in _SEGMENT:
        columns[name] = np.concatenate([getattr(log, name) for log in logs])
    return pa.table({**columns, **worked_columns(logs)})


def _records(contests: Sequence[Comparison]) -> Any:
    import pyarrow as pa

    logs = [contest.logs(contender, window) for contest, contender, window in _cells(contests)]
    return pa.table(
        {
            "cell": np.repeat(np.arange(len(logs), dtype=np.int32), [len(log.jobs_table) for log in logs]),
            # Null where it is the submission, which takes no room; NaN for a job that never joined the queue.
            "eligible_s": pa.array(
                np.concatenate([log.eligible_s for log in logs]),
                mask=np.concatenate([log.eligible_s == log.jobs_table["submit_s"] for log in logs]),
                from_pandas=False,
            ),
            "outcome": np.concatenate([log.job_outcome for log in logs]),
        }
    )


def _rows(contests: Sequence[Comparison]) -> Iterator[dict[str, Any]]:
    for contest, number, window in _cells(contests):
        contender = contest.contenders[number]
        yield {
            "trace": contest.trace,
            "policy": contender.policy,
            "backfill": str(contender.backfill),
            "kind": contender.kind,
            "label": contender.label,
            "window": window,
            "first_job": int(contest.windows.first[window]),
            "warmup_jobs": int(contest.windows.warmup[window]),
            **{name: float(value) for name, value in contest.table[number][window].items()},
        }


def load_comparison(path: str | PathLike[str]) -> ComparisonFolder:
    """Open what `save_comparison` wrote: the same logs, to the bit.

    A folder that is none, is half there or was changed is an InputError that says what is wrong.
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
        contests = tuple(_contests(folder, cases["cases"], results))
    except (KilowaitError, OSError, ValueError, KeyError, TypeError, IndexError) as problem:
        raise InputError(f"{folder} cannot be opened: {problem}") from None
    return ComparisonFolder(
        folder,
        scenario,
        manifest,
        results,
        contests,
        tuple(cases["cells"]),
    )


def _contests(
    folder: Path, cases: Sequence[Mapping[str, Any]], results: Mapping[str, Any]
) -> Iterator[Comparison]:
    import pyarrow.parquet as pq

    came_out = results.get("traces") or [{}] * len(cases)

    segments = _arrays(pq.read_table(folder / "segments.parquet"))
    records = pq.read_table(folder / "records.parquet")
    joined = records["eligible_s"].combine_chunks()
    marks = {
        "cell": records["cell"].to_numpy(),
        "outcome": records["outcome"].to_numpy(),
        "at_submission": joined.is_null().to_numpy(zero_copy_only=False),
        "eligible_s": joined.fill_null(0.0).to_numpy(),
    }
    states, pieces = read_states(folder / "states.parquet"), read_pieces(folder / "pieces.parquet")
    cell = 0
    for number, case in enumerate(cases):
        jobs = JobTable.from_parquet(folder / f"jobs-{number}.parquet")
        first, size, warmup = (np.array(column, np.int64) for column in case["windows"])
        windows = Windows(jobs, first, size, warmup, case["words"])
        contenders = tuple(PolicyConfig(**contender) for contender in case["contenders"])
        yield Comparison(
            trace=case["trace"],
            nodes=case["nodes"],
            windows=windows,
            contenders=contenders,
            logs=_Stored(windows, case, segments, marks, states, pieces, cell),
            ledger=case["ledger"],
            cluster=case["cluster"],
            notes=tuple(case["notes"]),
            energy=_energy(folder, number),
            gpus={label: known(row) for label, row in came_out[number].get("gpus", {}).items()},
        )
        cell += len(contenders) * len(windows)


def _energy(folder: Path, number: int) -> EnergyResults | None:
    path = folder / "energy.json"
    if not path.exists():
        return None
    data = json.loads(path.read_text(encoding="utf-8"))[number]
    if data is None:
        return None
    return EnergyResults(
        metrics=tuple(tuple(known(cell) for cell in row) for row in data["metrics"]),
        states=tuple(known(row) for row in data["states"]),
        curves=tuple(
            PowerCurve(**{key: tuple(values) for key, values in curve.items()}) for curve in data["curves"]
        ),
        drawn=data["drawn"],
        signals=tuple(
            SignalCurve(s["name"], s["unit"], s["words"], tuple(s["edge_s"]), tuple(s["value"]))
            for s in data["signals"]
        ),
        notes=tuple(data["notes"]),
    )


def _arrays(table: Any) -> dict[str, Any]:
    return {name: table[name].to_numpy() for name in table.column_names}


class _Stored:
    """The logs of one trace, cut out of the folder's columns when asked for."""

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

    def __call__(self, contender: int, window: int) -> ExecutionLog:
        cell = self._cell + contender * len(self._windows) + window
        jobs = self._windows[window].jobs
        low, high = np.searchsorted(self._segments["cell"], (cell, cell + 1))
        from_, to = np.searchsorted(self._records["cell"], (cell, cell + 1))
        if to - from_ != len(jobs):
            raise InputError(f"the comparison has {to - from_} records of a window of {len(jobs)} jobs")
        return ExecutionLog(
            jobs_table=jobs,
            job=self._segments["row"][low:high].astype(np.int64),
            **{name: self._segments[name][low:high] for name in _SEGMENT},
            eligible_s=np.where(
                self._records["at_submission"][from_:to],
                jobs["submit_s"],
                self._records["eligible_s"][from_:to],
            ),
            job_outcome=self._records["outcome"][from_:to],
            run=self._case["runs"][contender],
            states=self._states.get(cell),
            pieces=pieces_from(
                self._pieces.get(cell),
                {name: self._segments[name][low:high] for name in WORKED if name in self._segments},
            ),
            **machine_from(self._case["machine"]),
        )
