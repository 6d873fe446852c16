"""Tables with named columns, CSV or Parquet: usual names are recognised, others are mapped by the caller.

ALCF's job-composite files and their published derivatives, NREL Eagle's, the table of Slurm's database and
kilowait's own files are tables whose names, units and codes are known here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.errors import TraceError, UnknownNameError
from kilowait.jobs import JobTable
from kilowait.jobs.columns import COLUMNS, LABELLED
from kilowait.traces.cells import coded, number, seconds, split_line, unix_s
from kilowait.traces.ledger import Ledger
from kilowait.traces.mend import Draft

__all__ = ["ALIASES", "csv_delimiter", "own_parquet", "read_csv", "read_parquet"]

Floats = npt.NDArray[np.float64]
DELIMITERS = (",", ";", "\t", "|")
TARGETS = (*COLUMNS, "start_s", "end_s")

ALIASES: dict[str, Sequence[str]] = {
    "job_id": ("cobaltjobid", "jobid", "idjob", "jobidraw", "job", "jobnumber", "id"),
    "submit_s": (
        "submit queuedtimestamp submittime submittimestamp timesubmit submissiontime submitted arrivaltime qtime"
    ).split(),
    "start_s": ("start", "starttimestamp", "starttime", "timestart"),
    "end_s": ("end", "endtimestamp", "endtime", "timeend", "finishtime"),
    "runtime_s": ("runtimeseconds", "runtime", "duration", "elapsed", "elapsedtime", "elapsedraw"),
    "estimate_s": (
        "walltimeseconds wallclockreq walltime requestedtime reqtime requestedwalltime walltimelimits timelimit"
    ).split(),
    "nodes": (
        "nodesused usednodes nodesalloc allocnodes nodenum numnodes nnodes nodesreq nodesrequested requestednodes "
        "nodecount"
    ).split(),
    "cores": (
        "coresused usedcores cpunum ncpus alloccpus cpusalloc processorsreq coresrequested requestedcores cpusreq cpus"
    ).split(),
    "gpus": ("gpunum", "numgpus", "gpusreq", "ngpus"),
    "user": ("userid", "username", "usernamegenid", "cobaltusernamegenid", "iduser"),
    "account": ("project", "projectnamegenid", "cobaltprojectnamegenid", "projectid", "group", "groupid"),
    "queue": ("queuename", "queuegenid", "partition"),
    "name": ("jobname",),
    "status": ("newstatus", "exitstatus", "exitcode", "state", "jobstate"),
    "wait_s": ("waittime", "wait"),
}
"""Usual names, without signs and in lower case, the preferred first; kilowait's own names come before them."""

_WORDS = {1: "COMPLETED PASS PASSED OK SUCCESS SUCCEEDED DONE FINISHED CD COMPLETE"}
_WORDS |= {5: "CANCELLED CANCELED KILLED CA DELETED ABORTED"}
_WORDS |= {
    0: "FAILED FAIL TIMEOUT NODE_FAIL OUT_OF_MEMORY PREEMPTED BOOT_FAIL DEADLINE REQUEUED F TO NF OOM PR BF DL"
}
STATUS_WORDS = {word: float(code) for code, words in _WORDS.items() for word in words.split()}
_SLURM_CODES = {3: 1.0, 4: 5.0, 5: 0.0, 6: 0.0, 7: 0.0, 8: 0.0, 9: 0.0, 10: 0.0, 11: 0.0}


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


# -- files to columns of text --------------------------------------------------------------------


def csv_delimiter(line: str) -> str | None:
    """The delimiter of a header that names jobs' columns, else None.

    >>> csv_delimiter("job_id;submit_time;run_time;nodes"), csv_delimiter("to be, or not")
    (';', None)
    """
    known = {_plain(name) for name in TARGETS} | {alias for names in ALIASES.values() for alias in names}
    best = max(DELIMITERS, key=lambda mark: sum(_plain(name) in known for name in split_line(line, mark)))
    found = sum(_plain(name) in known for name in split_line(line, best))
    return best if found >= 2 else None


def read_csv(text: str, columns: Mapping[str, Any] | None, ledger: Ledger) -> tuple[Draft, dict[str, Any]]:
    """Rows of a CSV file with a header; `columns` maps kilowait's names to the file's."""
    lines = [line.rstrip("\r") for line in (text.split("\n") if "\n" in text else text.split("\r"))]
    top, delimiter = _header(lines, columns)
    names = [name.strip().lstrip("#").strip() for name in split_line(lines[top].lstrip(), delimiter)]
    names = [name.strip('"') for name in names]
    rows: list[list[str]] = []
    at: list[int] = []
    place = top + 1
    while place < len(lines):
        line, first = lines[place], place + 1
        place += 1
        if not line.strip() or line.startswith("#") or line == lines[top]:
            continue
        ledger.rows_read += 1
        if line.count('"') % 2 and delimiter != "|":
            line, place = _requoted(lines, place, delimiter, len(names))
        fields = split_line(line, delimiter)
        if len(fields) == len(names) + 1 and not fields[-1].strip():
            fields.pop()
        if len(fields) != len(names):
            ledger.add("dropped", f"fields not as many as the {len(names)} columns", 1, first)
            continue
        rows.append(fields)
        at.append(first)
    if not ledger.rows_read:
        raise TraceError("there is a header and not one row")
    cells = {}
    for index, name in reversed(list(enumerate(names))):
        cells[name] = [row[index].strip() for row in rows]
    return _draft(cells, np.array(at, np.int64), columns, ledger)


def _requoted(lines: list[str], place: int, delimiter: str, width: int) -> tuple[str, int]:
    """The line before `place` with those that its open quote takes in, and where to go on.

    A stray quote must not swallow the rows behind it: a line that is a whole row by itself ends the search.
    """
    joined = lines[place - 1]
    for end in range(place, min(place + 50, len(lines))):
        if lines[end].count('"') % 2 == 0 and len(split_line(lines[end], delimiter)) == width:
            break
        joined = f"{joined}\n{lines[end]}"
        if joined.count('"') % 2 == 0:
            if len(split_line(joined, delimiter)) == width:
                return joined, end + 1
            break
    return lines[place - 1], place


def _header(lines: list[str], columns: Mapping[str, Any] | None) -> tuple[int, str]:
    """Line and delimiter of the header: the first line that names columns, commented out or not."""
    wanted = {_source(value)[0] for value in columns.values()} if columns else set()
    first: int | None = None
    for index, line in enumerate(lines[:100]):
        if not line.strip():
            continue
        if wanted:
            for mark in DELIMITERS:
                if wanted <= {name.strip().strip('"') for name in split_line(line.lstrip("# "), mark)}:
                    return index, mark
        else:
            mark_found = csv_delimiter(line.lstrip("# "))
            if mark_found is not None:
                return index, mark_found
        if first is None and not line.startswith("#"):
            first = index
    if first is None:
        raise TraceError("there is not one line of jobs, only comments or blank lines")
    return first, max(DELIMITERS, key=lambda mark: len(split_line(lines[first], mark)))


def own_parquet(data: bytes, ledger: Ledger) -> JobTable | None:
    """The table that `JobTable.to_parquet` wrote, to the bit; None when this is another Parquet file."""
    table = _arrow(data)
    if b"kilowait" not in (table.schema.metadata or {}):
        return None
    try:
        jobs = JobTable.from_arrow(table)
    except (ValueError, TypeError, KeyError, AttributeError, UnknownNameError) as problem:
        raise TraceError(
            f"this Parquet file says that kilowait wrote it, but it cannot be read back: {problem}"
        ) from None
    ledger.rows_read = ledger.jobs = len(jobs)
    return jobs


def read_parquet(
    data: bytes, columns: Mapping[str, Any] | None, ledger: Ledger
) -> tuple[Draft, dict[str, Any]]:
    """Rows of a Parquet file; dates and times become Unix seconds."""
    import pyarrow as pa
    import pyarrow.types as pt

    table = _arrow(data)
    cells: dict[str, list[str]] = {}
    for name in reversed(table.column_names):
        column = table.column(name)
        try:
            if pt.is_timestamp(column.type):
                micro = (
                    column.cast(pa.timestamp("us", tz=column.type.tz), safe=False)
                    .cast(pa.int64())
                    .to_pylist()
                )
                cells[name] = ["" if v is None else repr(v / 1e6) for v in micro]
            elif pt.is_duration(column.type):
                micro = column.cast(pa.duration("us"), safe=False).cast(pa.int64()).to_pylist()
                cells[name] = ["" if v is None else repr(v / 1e6) for v in micro]
            else:
                cells[name] = ["" if v is None else v.strip() for v in column.cast(pa.string()).to_pylist()]
        except (pa.ArrowException, UnicodeDecodeError):
            continue  # Lists and structs are no column of a job.
    ledger.rows_read = table.num_rows
    if not table.num_rows:
        raise TraceError("this Parquet file has no rows")
    return _draft(cells, np.arange(1, table.num_rows + 1), columns, ledger)


def _arrow(data: bytes) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.read_table(pa.BufferReader(data))
    except (pa.ArrowException, OSError, ValueError) as problem:
        said = str(problem).splitlines()[0] if str(problem) else type(problem).__name__
        raise TraceError(f"this Parquet file is damaged or cut short: {said}; get the file again") from None


# -- columns of text to a draft ------------------------------------------------------------------


def _source(value: Any) -> tuple[str, float]:
    """Name and factor of an entry in the caller's map."""
    if isinstance(value, str):
        return value, 1.0
    if isinstance(value, (tuple, list)) and len(value) == 2 and isinstance(value[0], str):
        try:
            factor = float(value[1])
        except (TypeError, ValueError):
            factor = math.nan
        if math.isfinite(factor) and factor > 0:
            return value[0], factor
    raise TraceError(
        f"a column map has {value!r}; give a column's name, or (name, factor) as in ('limit_min', 60)"
    )


def _matched(
    cells: Mapping[str, list[str]], columns: Mapping[str, Any] | None
) -> dict[str, list[tuple[str, float]]]:
    """For each of kilowait's columns the file's columns that may hold it, the best first."""
    found: dict[str, list[tuple[str, float]]] = {}
    for target, value in (columns or {}).items():
        if target not in TARGETS:
            raise UnknownNameError("job column", target, TARGETS)
        name, factor = _source(value)
        if name not in cells:
            raise TraceError(f"the column map names {name!r} for {target}, but the file has {_listed(cells)}")
        found[target] = [(name, factor)]
    plain: dict[str, str] = {}
    for name in cells:
        plain.setdefault(_plain(name), name)
    mapped = {name for sources in found.values() for name, _ in sources}
    for target in TARGETS:
        if target in found:
            continue
        wanted = (
            target,
            *(plain[alias] for alias in (_plain(target), *ALIASES.get(target, ())) if alias in plain),
        )
        names = list(dict.fromkeys(name for name in wanted if name in cells and name not in mapped))
        if names:
            found[target] = [(name, 1.0) for name in names]
    return found


def _listed(cells: Mapping[str, list[str]]) -> str:
    names = [name or "(unnamed)" for name in cells]
    return f"the columns {', '.join(names[:40])}" + (
        f" and {len(names) - 40} more" if len(names) > 40 else ""
    )


def _draft(
    cells: dict[str, list[str]],
    line: npt.NDArray[np.int64],
    columns: Mapping[str, Any] | None,
    ledger: Ledger,
) -> tuple[Draft, dict[str, Any]]:
    cells = dict(reversed(list(cells.items())))
    found = _matched(cells, columns)
    absent = [name for name in ("submit_s",) if name not in found]
    absent += (
        []
        if "runtime_s" in found or {"start_s", "end_s"} <= set(found)
        else ["runtime_s (or start_s and end_s)"]
    )
    absent += [] if {"nodes", "cores", "gpus"} & set(found) else ["nodes"]
    if absent:
        raise TraceError(
            f"it lacks {', '.join(absent)}; it has {_listed(cells)}. Say which is which: "
            "columns={'submit_s': 'name of the column', 'runtime_s': ..., 'nodes': ...}"
        )
    kind = _kind(cells)
    own = kind == "csv" and {"submit_s", "runtime_s", "estimate_s"} <= set(cells)
    if not own:
        used = ", ".join(f"{target}={sources[0][0]}" for target, sources in found.items())
        ledger.add("note", f"columns read as {used}; spans in seconds")
    draft = Draft(line, {})
    for target in ("submit_s", "start_s", "end_s", "begin_s", "cancel_s"):
        if target in found:
            draft.numbers[target] = _times(cells, *found[target][0], target, draft, ledger)
    for target in ("runtime_s", "estimate_s", "wait_s", "think_s"):
        if target in found:
            name, factor = found[target][0]
            draft.numbers[target] = _array(seconds(text) for text in cells[name]) * factor
    for target in ("job_id", "after_id", "memory_mb", "energy_j", "nodes", "cores", "gpus"):
        for name, factor in found.get(target, ())[: None if target in ("nodes", "cores") else 1]:
            values = _array(number(text) for text in cells[name]) * factor
            held = draft.numbers.get(target)
            draft.numbers[target] = values if held is None else np.where(held > 0, held, values)
    for target in LABELLED:
        if target in found:
            blank = (
                frozenset({"", "0"}) if kind == "alcf" and target in ("user", "account") else frozenset({""})
            )
            draft.words[target] = coded(
                [re.sub(r"^(\d+)\.0$", r"\1", t) for t in cells[found[target][0][0]]], blank
            )
    if "status" in found:
        draft.numbers["status"] = _statuses(cells, found["status"][0][0], kind, own)
    _derive(draft, found, kind, ledger)
    meta: dict[str, Any] = {"unix_start_s": 0} if np.nanmax(draft.get("submit_s"), initial=0) > 5e8 else {}
    return draft, meta | ({"format": kind} if kind != "csv" else {})


def _kind(cells: Mapping[str, list[str]]) -> str:
    """Whose table this is, by its column names."""
    names = {_plain(name) for name in cells}
    if {"queuedtimestamp", "walltimeseconds"} <= names or {"walltime", "nodenum", "newstatus"} <= names:
        return "alcf"
    if {"wallclockreq", "nodesreq"} <= names:
        return "nrel"
    return "slurmdb" if {"idjob", "timesubmit"} <= names else "csv"


def _derive(draft: Draft, found: Mapping[str, Any], kind: str, ledger: Ledger) -> None:
    """Run time and wait from start and end; nodes from cores or GPUs; what only one kind of table says."""
    start, end = draft.numbers.pop("start_s", None), draft.numbers.pop("end_s", None)
    if start is not None and end is not None:
        between = np.where(start > 0, end - start, np.nan)
        held = draft.get("runtime_s")
        draft.numbers["runtime_s"] = np.where(np.isnan(held), between, held)
    if start is not None and "wait_s" not in draft.numbers:
        draft.numbers["wait_s"] = np.where(start > 0, start - draft.get("submit_s"), np.nan)
    if "nodes" not in found:
        other = "cores" if "cores" in found else "gpus"
        ledger.add("note", f"no column of nodes: {other} taken as nodes")
        draft.numbers["nodes"] = draft.numbers[other]
    if kind == "slurmdb" and "estimate_s" in draft.numbers:
        draft.numbers["estimate_s"] *= 60.0
        ledger.add("note", "timelimit is in minutes in Slurm's database")
    if kind == "alcf":
        if "cores" in draft.numbers:  # ThetaGPU's derivative counts GPUs and writes 0 for cores.
            draft.numbers["cores"] = np.where(draft.numbers["cores"] > 0, draft.numbers["cores"], np.nan)
        gpus = draft.get("gpus")
        if (gpus > 0).any() and np.array_equal(gpus, draft.numbers["nodes"]):
            ledger.add("note", "nodes are GPUs in this file")
        idle = (draft.get("runtime_s") <= 0) & ~(draft.get("nodes") > 0)
        draft.never["no nodes and no run time"] = idle
    if draft.numbers.get("estimate_s") is not None and kind != "csv":
        draft.numbers["estimate_s"] = np.where(
            draft.numbers["estimate_s"] > 0, draft.numbers["estimate_s"], np.nan
        )


def _array(values: Any) -> Floats:
    return np.array(list(values), np.float64)


def _times(
    cells: Mapping[str, list[str]], name: str, factor: float, target: str, draft: Draft, ledger: Ledger
) -> Floats:
    """Times of a column, either all numbers or all dates: the fewer of a mixture are on another clock."""
    texts = cells[name]
    dated = np.fromiter((len(text) >= 10 and text[4] == "-" for text in texts), np.bool_, len(texts))
    values = _array(unix_s(text) for text in texts)
    known = ~np.isnan(values)
    if target == "cancel_s":
        values[[text in ("inf", "Infinity") for text in texts]] = np.inf
    mostly = bool((dated & known).sum() * 2 >= known.sum()) if dated.any() else False
    stray = known & (dated != mostly)
    if stray.any():
        first = int(draft.line[int(stray.argmax())])
        said = "a date among numbers" if not mostly else "a number among dates"
        ledger.add("mended", f"{target}: {said}, taken as not known", int(stray.sum()), first)
        values[stray] = np.nan
    if mostly and target == "submit_s":
        ledger.add("note", "times without a zone are read as UTC")
    return values if mostly else values * factor


def _statuses(cells: Mapping[str, list[str]], name: str, kind: str, own: bool) -> Floats:
    codes: list[float] = []
    exits = _plain(name) in ("exitstatus", "exitcode")
    for text in cells[name]:
        value = number(text)
        if math.isnan(value):
            word = text.upper().split(" ")[0].rstrip("+") if text else ""
            codes.append(STATUS_WORDS.get(word, -1.0))
        elif own:
            codes.append(value)
        elif exits:
            codes.append(1.0 if value == 0 else 0.0)
        else:
            codes.append(_SLURM_CODES.get(int(value), -1.0) if kind == "slurmdb" else -1.0)
    return _array(codes)
