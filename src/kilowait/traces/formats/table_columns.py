"""Columns of CSV and Parquet tables: known names (aliases), origin and status codes; conversion to raw job columns."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.errors import TraceError, UnknownNameError
from kilowait.jobs.columns import COLUMNS, LABEL_COLUMNS
from kilowait.traces.cell_parser import coded, number, numbers, split_line, unix_s
from kilowait.traces.clean import Floats, RawColumns
from kilowait.traces.cleaning_report import CleaningReport
from kilowait.traces.formats.cell_values import (
    UNKNOWN_WORDS,
    durations,
    job_numbers,
    job_references,
    quantities,
    report_lost,
    whole_names,
)

_TIMES = ("submit_s", "start_s", "end_s", "begin_s", "cancel_s", "hold_until_s")
_SPANS = ("runtime_s", "estimate_s", "planned_s", "limit_s", "overrun_planned_s", "wait_s", "think_s")
_IDS = ("job_id", "after_id")
_NUMBERS = tuple(name for name in COLUMNS if name not in (*_IDS, *_TIMES, *_SPANS, *LABEL_COLUMNS, "status"))
_INFINITE = ("inf", "Infinity")
UNIX_S = 5e8
"""Times beyond this are Unix time: logs are shorter than sixteen years."""


def column_source(value: Any) -> tuple[str, float]:
    """Column name and unit factor of an entry of the column map."""
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
        f"the column map contains {value!r}; give a column name, or (name, factor) as in ('limit_min', 60)"
    )


def _matched(
    cells: Mapping[str, list[str]], columns: Mapping[str, Any] | None, kind: str
) -> dict[str, list[tuple[str, float]]]:
    """For each of kilowait's columns the candidate columns of the file, the best first."""
    aliases = RECORD_ALIASES if kind == "records" else ALIASES
    found: dict[str, list[tuple[str, float]]] = {}
    for target, value in (columns or {}).items():
        if target not in MAPPABLE_COLUMNS:
            raise UnknownNameError("job column", target, MAPPABLE_COLUMNS)
        name, factor = column_source(value)
        if name not in cells:
            raise TraceError(f"the column map names {name!r} for {target}, but the file has {_listed(cells)}")
        found[target] = [(name, factor)]
    written: dict[str, str] = {}
    for name in cells:
        written.setdefault(normalized_name(name), name)
    mapped = {name for sources in found.values() for name, _ in sources}
    for target in MAPPABLE_COLUMNS:
        if target in found:
            continue
        wanted = (
            target,
            *(written[alias] for alias in (normalized_name(target), *aliases.get(target, ())) if alias in written),
        )
        names = list(dict.fromkeys(name for name in wanted if name in cells and name not in mapped))
        if names:
            found[target] = [(name, 1.0) for name in names]
    return found


def _listed(cells: Mapping[str, list[str]]) -> str:
    names = [name or "(unnamed)" for name in cells]
    return f"the columns {', '.join(names[:40])}" + (f" and {len(names) - 40} more" if len(names) > 40 else "")


def raw_columns_of(
    cells: dict[str, list[str]], line: npt.NDArray[np.int64], columns: Mapping[str, Any] | None, report: CleaningReport
) -> tuple[RawColumns, dict[str, Any]]:
    """The raw job columns, and meta data on time origin and table format."""
    kind = table_origin(cells)
    found = _matched(cells, columns, kind)
    if kind == "records" and "start_s" in found and "wait_s" not in (columns or {}):
        found.pop("wait_s", None)  # it does not count the time before a job is eligible, so it does not give the start
    absent = [name for name in ("submit_s",) if name not in found]
    absent += [] if "runtime_s" in found or {"start_s", "end_s"} <= set(found) else ["runtime_s (or start_s and end_s)"]
    absent += [] if {"nodes", "cores", "gpus"} & set(found) else ["nodes"]
    if absent:
        named = [text.split(" ")[0] for text in absent]
        raise TraceError(
            f"it lacks {', '.join(absent)}; it has {_listed(cells)}. Name the column of the file for each: "
            f"--columns {','.join(f'{name}=NAME' for name in named)} (in Python: columns={{{named[0]!r}: 'NAME', ...}})"
        )
    own = kind == "csv" and is_own_table(cells)
    if not own:
        used = ", ".join(f"{target}={sources[0][0]}" for target, sources in found.items())
        report.add("note", f"columns read as {used}; spans in seconds")
    _note_unused(cells, found, ALCF_COLUMNS if kind == "alcf" else frozenset(), report)
    draft = RawColumns(line, {}, whole_bytes=not own)
    if "job_id" in found:
        texts = cells[found["job_id"][0][0]]
        draft.numbers["job_id"], names = job_numbers(texts, line, report)
        if names is not None and "log_id" not in found:
            draft.words["log_id"] = names
        if "after_id" in found:
            ids = dict(zip(texts, draft.numbers["job_id"].tolist(), strict=True))
            draft.numbers["after_id"] = job_references(cells[found["after_id"][0][0]], ids, line, report)
    for target in _TIMES:
        if target in found:
            draft.numbers[target] = _times(cells, *found[target][0], target, draft, report)
    for target in _SPANS:
        if target in found:
            name, factor = found[target][0]
            draft.numbers[target] = durations(cells[name], factor)
            report_lost(
                target, cells[name], draft.numbers[target], line, report,
                expected="a time span", required=target == "runtime_s",
            )  # fmt: skip
            if normalized_name(name) == "timelimit" and kind == "csv" and not columns:
                _without_unit(draft, name, cells[name], report)
    for target in _NUMBERS:
        for name, factor in found.get(target, ())[: None if target in ("nodes", "cores") else 1]:
            values = quantities(target, cells[name], line, report) * factor
            report_lost(target, cells[name], values, line, report, required=target == "nodes")
            if target == "checkpoint_s":  # No checkpoints.
                values[[text in _INFINITE for text in cells[name]]] = np.inf
            earlier = draft.numbers.get(target)
            draft.numbers[target] = values if earlier is None else np.where(earlier > 0, earlier, values)
    for target in LABEL_COLUMNS:
        if target in found:
            blank = frozenset({"", "0"}) if kind == "alcf" and target in ("user", "account") else frozenset({""})
            texts = cells[found[target][0][0]]
            draft.words[target] = coded(texts if own else whole_names(target, texts, line, report), blank)
    if "status" in found:
        draft.numbers["status"] = _statuses(cells, found["status"][0][0], kind, own, draft, report)
    first_nodes = numbers(cells[found["nodes"][0][0]]) if "nodes" in found else None
    _derive(draft, first_nodes, "alcf" if kind == "alcf" else "own" if own else kind, report)
    meta: dict[str, Any] = {"unix_start_s": 0} if np.nanmax(draft.get("submit_s"), initial=0) > UNIX_S else {}
    if any(text[4:5] == "-" for text in cells[found["submit_s"][0][0]][:20]):
        meta["time_zone"] = "UTC (assumed)"
    return draft, meta | ({"format": kind} if kind != "csv" else {})


def _derive(draft: RawColumns, used: Floats | None, kind: str, report: CleaningReport) -> None:
    """Derive run time and wait from start and end, nodes from cores or GPUs; rules specific to one table origin."""
    start, end = draft.numbers.pop("start_s", None), draft.numbers.pop("end_s", None)
    numbers = draft.numbers
    if start is not None:
        # In Unix time 0 is an empty cell of some databases; in relative time it is a valid value.
        start = np.where((start <= 0) & (draft.get("submit_s") > UNIX_S), np.nan, start)
        if end is not None:
            numbers["runtime_s"] = np.where(np.isnan(draft.get("runtime_s")), end - start, draft.get("runtime_s"))
        if "wait_s" not in numbers:
            numbers["wait_s"] = start - draft.get("submit_s")
        if kind == "records" and end is not None:
            parts = end - start > draft.get("runtime_s") * (1 + 1e-9) + 1e-6
            report.add_rows(
                "note", "ran in several parts: the run time is their sum, not end - start", parts, draft.line
            )
        unstarted = np.isnan(start) & ~(draft.get("runtime_s") > 0)
        draft.never_ran["it has no start"] = unstarted
        if end is not None:
            numbers["cancel_s"] = np.where(unstarted & (end >= draft.get("submit_s")), end, draft.get("cancel_s"))
    if used is None:
        other = "cores" if "cores" in numbers else "gpus"
        report.add("note", f"no column of nodes: {other} used as nodes")
        numbers["nodes"] = numbers[other]
        draft.unit = "processor" if other == "cores" else "node"
    if kind != "own" and "estimate_s" in numbers:
        numbers["estimate_s"] = np.where(numbers["estimate_s"] > 0, numbers["estimate_s"], np.nan)
    if kind == "slurmdb" and "estimate_s" in numbers:
        numbers["estimate_s"] = numbers["estimate_s"] * 60.0
        report.add("note", "timelimit is in minutes in Slurm's database")
    if kind == "alcf":
        if "cores" in numbers:  # ThetaGPU's derivative counts GPUs and writes 0 for cores.
            numbers["cores"] = np.where(numbers["cores"] > 0, numbers["cores"], np.nan)
        gpus = draft.get("gpus")
        if (gpus > 0).any() and np.array_equal(gpus, numbers["nodes"]):
            report.add("note", "nodes are GPUs in this file")
        if used is not None:
            draft.never_ran["no nodes used and no run time"] = ~(used > 0) & (draft.get("runtime_s") <= 0)


def _note_unused(
    cells: Mapping[str, list[str]],
    found: Mapping[str, list[tuple[str, float]]],
    read_later: frozenset[str],
    report: CleaningReport,
) -> None:
    """Note the columns of the file that no column of the job table is read from, now or later."""
    used = set()
    for target, sources in found.items():
        used |= {name for name, _ in (sources if target in ("nodes", "cores") else sources[:1])}
    unused = [name or "(unnamed)" for name in cells if name not in used and normalized_name(name) not in read_later]
    if unused:
        more = f" and {len(unused) - 40} more" if len(unused) > 40 else ""
        report.add("note", f"columns not read: {', '.join(unused[:40])}{more}")


def _without_unit(draft: RawColumns, name: str, texts: list[str], report: CleaningReport) -> None:
    """Reject time limits without a unit: they may be in minutes, as in Slurm, or in seconds."""
    bare = np.array([":" not in text for text in texts], np.bool_) & ~np.isnan(draft.numbers["estimate_s"])
    reason = "a number without a unit, which is ignored; if it is in minutes, map it: --columns estimate_s"
    report.add_rows("note", f"{name} is {reason}={name}*60", bare, draft.line)
    draft.numbers["estimate_s"] = np.where(bare, np.nan, draft.numbers["estimate_s"])


def _times(
    cells: Mapping[str, list[str]], name: str, factor: float, target: str, draft: RawColumns, report: CleaningReport
) -> Floats:
    """Times of a column, either all numbers or all dates: of a mixture the minority becomes unknown."""
    texts = cells[name]
    dated = np.fromiter((len(text) >= 10 and text[4] == "-" for text in texts), np.bool_, len(texts))
    values = np.array([unix_s(text) for text in texts]) if dated.any() else numbers(texts)
    known = ~np.isnan(values)
    if target == "cancel_s":
        values[[text in _INFINITE for text in texts]] = np.inf
    report_lost(
        target, texts, values, draft.line, report,
        expected="a number of seconds or a date", required=target == "submit_s",
    )  # fmt: skip
    mostly = bool((dated & known).sum() * 2 >= known.sum()) if dated.any() else False
    stray = known & (dated != mostly)
    reason = "a date among numbers" if not mostly else "a number among dates"
    report.add_rows("corrected", f"{target}: {reason}, treated as unknown", stray, draft.line)
    values[stray] = np.nan
    if mostly and target == "submit_s":
        report.add("note", "times without a zone are read as UTC")
    return values if mostly else values * factor


def _statuses(
    cells: Mapping[str, list[str]], name: str, kind: str, own: bool, draft: RawColumns, report: CleaningReport
) -> Floats:
    """Status codes of words, exit codes or codes of Slurm's database; -1 for unknown ones, which are counted."""
    exits = normalized_name(name) in ("exitstatus", "exitcode")
    texts = cells[name]

    def code(text: str) -> float:
        value = number(text)
        if kind == "records":
            return _OUTCOMES.get(text.lower(), math.nan)
        if math.isnan(value):
            word = text.upper().split(" ")[0].rstrip("+") if text else ""
            return STATUS_WORDS.get(word, -1.0 if text.lower() in UNKNOWN_WORDS else math.nan)
        if own:
            return value
        if exits:
            return 1.0 if value == 0 else 0.0
        return SLURM_CODES.get(int(value), -1.0) if kind == "slurmdb" else math.nan

    code_of = {text: code(text) for text in set(texts)}
    codes = np.array([code_of[text] for text in texts], np.float64)
    report_lost("status", texts, codes, draft.line, report, expected="a known state of a job")
    return codes


ALCF_COLUMNS = frozenset(("machinename", "location", "eligiblewaitseconds", "jobname"))
"""Normalized names of the columns that `formats.alcf` reads."""
DELIMITERS = (",", ";", "\t", "|")
MAPPABLE_COLUMNS = (*COLUMNS, "start_s", "end_s")

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
    "node_list": ("nodelist",),
    "status": ("newstatus", "exitstatus", "exitcode", "state", "jobstate"),
    "wait_s": ("waittime", "wait"),
}
"""Aliases of each column, normalized by `normalized_name`, preferred first; kilowait's own names take precedence."""

RECORD_ALIASES: dict[str, Sequence[str]] = {
    **ALIASES,
    "runtime_s": ("runs",),
    "account": ("project", "projectid"),
    "status": ("outcome",),
}
"""Aliases in the per-job records of a run, where `group` is the node group."""

_OUTCOMES = {"1": 1.0, "2": 0.0, "3": 5.0, "completed": 1.0, "killed": 0.0, "cancelled": 5.0}
_OUTCOMES |= dict.fromkeys(("0", "4", "unstarted", "rejected"), -1.0)
"""Outcomes of jobs (`kilowait.jobs.Outcome`) to status."""

_WORDS = {1: "COMPLETED PASS PASSED OK SUCCESS SUCCEEDED DONE FINISHED CD COMPLETE"}
_WORDS |= {5: "CANCELLED CANCELED KILLED CA DELETED ABORTED"}
_WORDS |= {0: "FAILED FAIL TIMEOUT NODE_FAIL OUT_OF_MEMORY PREEMPTED BOOT_FAIL DEADLINE REQUEUED F TO NF OOM PR BF DL"}
STATUS_WORDS = {word: float(code) for code, words in _WORDS.items() for word in words.split()}
SLURM_CODES = {3: 1.0, 4: 5.0, 5: 0.0, 6: 0.0, 7: 0.0, 8: 0.0, 9: 0.0, 10: 0.0, 11: 0.0}
"""State codes of Slurm's database to status."""


def normalized_name(name: str) -> str:
    """Normalize a column name: lower case, letters and digits only."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


KNOWN = frozenset(normalized_name(name) for name in MAPPABLE_COLUMNS).union(*ALIASES.values())
"""Known names and aliases of columns, normalized."""


def csv_delimiter(line: str) -> str | None:
    """The delimiter of a header line with known job columns, else None.

    >>> csv_delimiter("job_id;submit_time;run_time;nodes"), csv_delimiter("to be, or not")
    (';', None)
    """
    counts = {mark: sum(normalized_name(name) in KNOWN for name in split_line(line, mark)) for mark in DELIMITERS}
    best = max(DELIMITERS, key=lambda mark: counts[mark])
    return best if counts[best] >= 2 else None


def is_table(lines: list[str]) -> bool:
    """Whether all lines have the same number of fields, at least three: a table, possibly with unknown names.

    >>> is_table(["a,b,c", "1,2,3"]), is_table(["one, two", "words"])
    (True, False)
    """
    widths = ({len(split_line(line, mark)) for line in lines} for mark in DELIMITERS)
    return len(lines) > 1 and any(len(found) == 1 and min(found) > 2 for found in widths)


def table_origin(columns: Iterable[str]) -> str:
    """Origin of a table by its column names: records (of a run), alcf, nrel, slurmdb or csv."""
    columns = set(columns)
    if {"eligible_s", "start_s", "run_s", "outcome"} <= columns:
        return "records"
    names = {normalized_name(name) for name in columns}
    if {"queuedtimestamp", "walltimeseconds"} <= names or {"walltime", "nodenum", "newstatus"} <= names:
        return "alcf"
    if {"wallclockreq", "nodesreq"} <= names:
        return "nrel"
    return "slurmdb" if {"idjob", "timesubmit"} <= names else "csv"


def is_own_table(names: Iterable[str]) -> bool:
    """Whether these are columns of a table that kilowait wrote: the times that every table has, by their exact names.

    >>> is_own_table(["submit_s", "runtime_s", "estimate_s", "nodes"]), is_own_table(["submit_s", "runtime_s"])
    (True, False)
    """
    return {"submit_s", "runtime_s", "estimate_s"} <= set(names)
