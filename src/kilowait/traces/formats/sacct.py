"""Reader of ``sacct -P`` dumps of Slurm's accounting, with any set of columns.

sacct does not escape values: a job name may contain delimiters and a submit line line breaks. Lines are joined into
records, and a record with too many fields is aligned with the columns so that every typed column matches.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

import numpy as np

from kilowait.errors import TraceError
from kilowait.traces.cell_parser import coded, megabytes, number, seconds, split_line, unix_s
from kilowait.traces.clean import Floats, RawColumns
from kilowait.traces.cleaning_report import CleaningReport
from kilowait.traces.formats.sacct_rules import (
    begin_waits_at_eligible,
    merge_parts,
    report_waiting_arrays,
    single_partitions,
)
from kilowait.traces.formats.sacct_without_header import field_list
from kilowait.traces.formats.table_columns import STATUS_WORDS
from kilowait.traces.trace_input import TraceInput

_WAITING = frozenset("PENDING PD CONFIGURING CF REQUEUE_HOLD REQUEUE_FED SPECIAL_EXIT RESV_DEL_HOLD".split())
_RUNNING = frozenset("RUNNING R SUSPENDED S COMPLETING CG STAGE_OUT SIGNALING STOPPED".split())
_GPUS = re.compile(r"gres/gpu=(\d+)")
_TYPED_GPUS = re.compile(r"gres/gpu:[^=,]+=(\d+)")


class _Dump:
    """Records of a dump with access by column."""

    def __init__(self, names: list[str], records: list[list[str]]) -> None:
        self.size = len(records)
        self.place = {name: index for index, name in reversed(list(enumerate(names))) if name}
        self.records = records
        self.read: set[str] = set()
        """Columns that were read."""

    def __contains__(self, name: str) -> bool:
        return name in self.place

    def text(self, name: str) -> list[str]:
        """Cells of a column, empty if there is no such column."""
        if name not in self.place:
            return [""] * self.size
        self.read.add(name)
        index = self.place[name]
        return [record[index].strip() for record in self.records]

    def first(self, reader: Any, *names: str, minimum: float = -np.inf) -> Floats:
        """Per row, the value of the first of these columns with a value of at least `minimum`."""
        values = np.full(self.size, np.nan)
        for name in names:
            if name in self.place:
                column_values = np.array([reader(text) for text in self.text(name)], np.float64)
                take = np.isnan(values) & (column_values >= minimum)
                values[take] = column_values[take]
        return values

    def tres(self, key: str, *names: str) -> Floats:
        """A count or an amount from TRES columns such as AllocTRES."""
        rule = re.compile(rf"(?:^|,){key}=([^,]+)")
        reader = megabytes if key == "mem" else number

        def read(text: str) -> float:
            match = rule.search(text)
            return reader(match.group(1)) if match else np.nan

        return self.first(read, *names)


def read_sacct(source: TraceInput, report: CleaningReport) -> tuple[RawColumns, dict[str, Any]]:
    """Read the jobs of a dump; steps are merged into their jobs, times are Unix seconds."""
    names, records, at = sacct_records(source.take_text(report, "a dump"), report)
    if "submit" not in names:
        raise TraceError("the dump has no column Submit; dump again with --format=JobID,Submit,Start,End,NNodes,...")
    if not report.rows_read:
        raise TraceError("there is a header, but no records")
    records, at = _without_steps(names, records, at, report)
    dump = _Dump(names, records)
    draft = RawColumns(np.array(at, np.int64), {})
    submit, start, end = (dump.first(unix_s, name) for name in ("submit", "start", "end"))
    cpus = _either(dump.first(number, "alloccpus", "ncpus", minimum=1), dump.tres("cpu", "alloctres"))
    requested_cpus = _either(dump.first(number, "reqcpus", minimum=1), dump.tres("cpu", "reqtres"))
    draft.numbers |= {
        "job_id": _job_numbers(dump, report),
        "submit_s": submit,
        "estimate_s": _limits(dump),
        "cores": _either(cpus, requested_cpus),
        "energy_j": dump.first(number, "consumedenergyraw"),
    }
    begin_waits_at_eligible(draft, dump.first(unix_s, "eligible"), start, report)
    waited = start - draft.numbers["submit_s"]
    draft.numbers["wait_s"] = _either(waited, dump.first(seconds, "reserved", "planned"))
    nodes = _either(dump.first(number, "allocnodes", "nnodes", minimum=1), dump.tres("node", "alloctres"))
    requested_nodes = _either(
        dump.first(lambda t: number(t.split("-")[0]), "reqnodes", minimum=1), dump.tres("node", "reqtres")
    )
    if not {"allocnodes", "nnodes", "alloctres", "reqnodes", "reqtres"} & set(names):
        report.add("note", "no column of nodes: CPUs used as nodes")
        nodes, draft.unit = draft.numbers["cores"], "processor"
    elif not {"allocnodes", "nnodes", "alloctres"} & set(names):
        report.add("note", "no column of allocated nodes: requested nodes used")
    draft.numbers["nodes"] = _either(nodes, requested_nodes)
    draft.numbers["gpus"] = _gpus(dump)
    draft.numbers["memory_mb"] = _memory(dump, draft)
    elapsed = _either(dump.first(number, "elapsedraw"), dump.first(seconds, "elapsed"), end - start)
    elapsed = _either(elapsed, dump.first(number, "cputimeraw") / cpus, dump.first(seconds, "cputime") / cpus)
    draft.numbers["runtime_s"] = elapsed
    if np.isnan(elapsed).all() and "cputimeraw" in dump:
        _approximate(dump, draft, requested_cpus, report)
    _states(dump, draft, start, end)
    for target, options in (
        ("user", ("user", "uid")),
        ("account", ("account", "group")),
        ("qos", ("qos",)),
        ("name", ("jobname",)),
        ("node_list", ("nodelist",)),
    ):
        column = next((name for name in options if name in dump), None)
        if column is not None:
            draft.words[target] = coded(dump.text(column), frozenset({"", "Unknown", "None", "None assigned"}))
    if "partition" in dump:
        partitions = single_partitions(dump.text("partition"), dump.text("nodelist"), draft.line, report)
        draft.words["queue"] = coded(partitions, frozenset({"", "Unknown", "None"}))
    report_waiting_arrays(dump.text("jobid"), draft.line, report)
    merge_parts(draft, dump.text("jobid"), start, report)
    left_out = [name for name in dump.place if name not in dump.read]
    if left_out:
        report.add("note", f"columns left out: {', '.join(left_out)}")
    report.add("note", "times without a zone are read as UTC")
    return draft, {"unix_start_s": 0, "time_zone": "UTC (assumed)"}


def _either(*columns: Floats) -> Floats:
    """Per row, the first known value."""
    values = columns[0]
    for other in columns[1:]:
        values = np.where(np.isnan(values), other, values)
    return values


def _without_steps(
    names: list[str], records: list[list[str]], at: list[int], report: CleaningReport
) -> tuple[list[list[str]], list[int]]:
    """The records of jobs; for a job with only steps, the longest step."""
    column = next((names.index(name) for name in ("jobid", "jobidraw") if name in names), None)
    if column is None:
        return records, at
    keys = [record[column].strip() for record in records]
    jobs = {key for key in keys if "." not in key}
    orphans: dict[str, int] = {}
    span = next((names.index(name) for name in ("elapsedraw", "elapsed") if name in names), None)
    for index, key in enumerate(keys):
        owner = key.partition(".")[0]
        if "." not in key or owner in jobs:
            continue
        longest = orphans.setdefault(owner, index)
        if span is not None and seconds(records[index][span]) > seconds(records[longest][span]):
            orphans[owner] = index
    kept = [i for i, key in enumerate(keys) if "." not in key or orphans.get(key.partition(".")[0]) == i]
    report.folded += len(keys) - len(kept)
    for index in sorted(orphans.values()):
        report.add("corrected", "steps without a job record: the longest step is used as the job", 1, at[index])
    return [records[i] for i in kept], [at[i] for i in kept]


def _job_numbers(dump: _Dump, report: CleaningReport) -> Floats:
    """JobIDRaw, or JobID if it is a plain number; other array tasks get new numbers after the largest."""
    texts = dump.text("jobidraw" if "jobidraw" in dump else "jobid")
    ids = np.array([number(t.partition(".")[0]) if t[:1].isdigit() else np.nan for t in texts], np.float64)
    unclear = np.isnan(ids)
    if unclear.any() and not unclear.all():
        report.add("note", "array tasks and parts of jobs without JobIDRaw: renumbered", int(unclear.sum()))
        ids[unclear] = np.nanmax(ids) + 1 + np.arange(int(unclear.sum()))
    return ids


def _limits(dump: _Dump) -> Floats:
    """Time limits in seconds; unlimited and similar values are unknown."""
    minutes = dump.first(number, "timelimitraw", minimum=1)
    minutes = np.where(minutes >= 2**32 - 2, np.nan, minutes)
    spans = dump.first(lambda t: number(t) * 60 if t.isdigit() else seconds(t), "timelimit", minimum=1)
    return _either(minutes * 60, spans)


def _gpus(dump: _Dump) -> Floats:
    def read(text: str) -> float:
        whole = _GPUS.search(text)
        if whole is not None:
            return number(whole.group(1))
        return sum(map(number, _TYPED_GPUS.findall(text))) if text else np.nan

    return dump.first(read, "alloctres", "reqtres")


def _memory(dump: _Dump, draft: RawColumns) -> Floats:
    """Total MB: ReqMem with n is per node, with c per CPU, else per job (since Slurm 21.08)."""
    texts = dump.text("reqmem")
    amount = np.array([megabytes(text.rstrip("nc?")) for text in texts], np.float64)
    per_node = np.array([text.endswith("n") for text in texts], np.bool_)
    per_cpu = np.array([text.endswith("c") for text in texts], np.bool_)
    factor = np.where(per_node, draft.numbers["nodes"], np.where(per_cpu, draft.numbers["cores"], 1.0))
    with np.errstate(over="ignore"):  # Such an amount is invalid in any case.
        return _either(amount * factor, dump.tres("mem", "alloctres", "reqtres"))


def _approximate(dump: _Dump, draft: RawColumns, requested_cpus: Floats, report: CleaningReport) -> None:
    """Approximate run times for a dump without Start, End, Elapsed and allocated CPUs."""
    cpu_s = dump.first(number, "cputimeraw")
    limit = draft.numbers["estimate_s"]
    runtime = cpu_s / requested_cpus
    states = np.array([text.split(" ")[0] for text in dump.text("state")])
    capped = (runtime > limit) | ((states == "TIMEOUT") & (limit > 0) & (cpu_s > 0))
    draft.numbers["runtime_s"] = np.where(capped, limit, runtime)
    cores = np.where(capped, np.maximum(np.round(cpu_s / limit), 1), draft.numbers["cores"])
    draft.numbers["cores"] = cores
    draft.numbers["wait_s"] = _either(
        draft.numbers["wait_s"], dump.first(number, "resvcpuraw", "plannedcpuraw") / requested_cpus
    )
    first = int(draft.line[0]) if len(draft) else None
    reason = "run time is CPUTimeRAW / ReqCPUS, approximate: more CPUs may have been allocated than requested"
    report.add("corrected", reason, int((~np.isnan(runtime) & ~capped).sum()), first)
    reason = "run time by CPUTimeRAW / ReqCPUS beyond the time limit, or a timeout: the limit used, approximate"
    report.add_rows("corrected", reason, capped, draft.line)


def _states(dump: _Dump, draft: RawColumns, start: Floats, end: Floats) -> None:
    """Status codes, jobs that never ran, and jobs that were still running."""
    words = [text.split(" ")[0].rstrip("+") for text in dump.text("state")]
    draft.numbers["status"] = np.array([STATUS_WORDS.get(word, -1.0) for word in words], np.float64)
    pending = np.array([word in _WAITING for word in words], np.bool_)
    running = np.array([word in _RUNNING for word in words], np.bool_)
    has_states = any(words)
    if not has_states and "start" in dump:
        pending, running = np.isnan(start), ~np.isnan(start) & np.isnan(end) if "end" in dump else running
    array = np.array(["[" in text for text in dump.text("jobid")], np.bool_)
    runtime = draft.numbers["runtime_s"]
    without_nodes = np.zeros(len(draft), np.bool_)
    for name, blank in (("nodelist", ("None assigned", "")), ("alloctres", ("",)), ("allocnodes", ("0",))):
        if name in dump:
            without_nodes |= np.array([text in blank for text in dump.text(name)], np.bool_)
    without_nodes |= np.isnan(start) if "start" in dump else False
    idle = without_nodes & ~(runtime > 0) & ~pending & ~running
    cancelled = draft.numbers["status"] == 5
    draft.invalid = {"still running when the dump was made: run time unknown": running}
    draft.never_ran = {
        "tasks of an array still waiting when the dump was made": array & ~running & ~(runtime > 0),
        "still waiting when the dump was made": pending,
        "cancelled while it waited": idle & cancelled,
        "ended without having started": idle & ~cancelled,
    }
    draft.numbers["cancel_s"] = np.where(idle & (end >= draft.numbers["submit_s"]), end, np.nan)


_TIMES = "Submit Eligible Start End"
_SPANS = (
    "Elapsed CPUTime TotalCPU UserCPU SystemCPU Timelimit Reserved Planned ResvCPU PlannedCPU Suspended AveCPU MinCPU"
)
_COUNTS = (
    "AllocCPUS AllocNodes AssocID ConsumedEnergyRaw CPUTimeRAW DBIndex ElapsedRaw GID NCPUS NNodes NTasks Priority "
    "QOSRAW ReqCPUS ReqNodes ReservationId ResvCPURAW PlannedCPURAW TimelimitRaw UID WCKeyID Restarts "
    "MaxDiskReadTask MaxDiskWriteTask MaxPagesTask MaxRSSTask MaxVMSizeTask MinCPUTask"
)
_TRES = (
    "AllocTRES ReqTRES TRESUsageInAve TRESUsageInMax TRESUsageInMaxNode TRESUsageInMaxTask TRESUsageInMin "
    "TRESUsageInMinNode TRESUsageInMinTask TRESUsageInTot TRESUsageOutAve TRESUsageOutMax TRESUsageOutMaxNode "
    "TRESUsageOutMaxTask TRESUsageOutMin TRESUsageOutMinNode TRESUsageOutMinTask TRESUsageOutTot"
)
_WORDS = (
    "Account AveCPUFreq AveDiskRead AveDiskWrite AvePages AveRSS AveVMSize BlockID Cluster ConsumedEnergy Flags Group "
    "Layout MaxDiskRead MaxDiskReadNode MaxDiskWrite MaxDiskWriteNode MaxPages MaxPagesNode MaxRSS MaxRSSNode "
    "MaxVMSize MaxVMSizeNode McsLabel MinCPUNode Partition QOS ReqCPUFreq ReqCPUFreqMin ReqCPUFreqMax ReqCPUFreqGov "
    "ReqMem User AllocGRES ReqGRES QOSREQ FailedNode"
)
_LIKELY = "JobName SubmitLine Constraints Comment AdminComment SystemComment"
_FREE = "WorkDir Reason Container Extra Licenses WCKey Reservation NodeList StdErr StdIn StdOut"
_PATTERNS = {
    _TIMES: r"\d{4}-\d\d-\d\d[T ][\d:.]+\S*|\d+(?:\.\d+)?|Unknown|None|NONE|N/A",
    _SPANS: r"(?:(?:\d+-)?\d+(?::\d+)*(?:\.\d+)?|UNLIMITED|Partition_Limit|INVALID|Unknown)?",
    _COUNTS: r"(?:\d+(?:\.\d+)?[KMG]?|\d+-\d+|UNLIMITED|Partition_Limit|INVALID|Unknown)?",
    _TRES: r"(?:[\w/:.-]+=\S*)?",
    _WORDS: r"\S*",
    "ExitCode DerivedExitCode": r"(?:\d+:\d+)?",
    "JobID JobIDRaw": r"\d+(?:_(?:\[[\d,%:.-]+\]?|\d+))?(?:\+\d+)?(?:\.\w+)?(?:\+\d+)?",
    "State": r"(?:[A-Z_]{1,15}\+?(?: by \S+)?)?",
}
_TYPED = {name.lower(): re.compile(rule) for names, rule in _PATTERNS.items() for name in names.split()}
_ABSORBS = {name.lower(): 1 for name in _LIKELY.split()} | {name.lower(): 3 for name in _FREE.split()}
_KNOWN = frozenset(_TYPED) | frozenset(_ABSORBS)

_KEYS = frozenset({"jobid", "jobidraw", "submit", "start", "end", "state"})
"""Columns that must match in an alignment; in the others a mismatch only increases its cost."""
MAX_LINES = 500
"""Maximum physical lines per record."""
_INSPECTED = 200
"""Lines by which the columns of a dump without a header are chosen."""
MAX_EXTRA = 64
"""Maximum delimiters inside the values of a record."""


def sacct_delimiter(line: str) -> str | None:
    """The delimiter if this line is a sacct header, else None.

    >>> sacct_delimiter("JobID|State|Submit|Elapsed"), sacct_delimiter("job,user,nodes")
    ('|', None)
    """
    names = list(re.finditer(r"[A-Za-z]+", line))
    known = [name for name in names if name.group().lower() in _KNOWN]
    if (
        len(known) < 3
        or len(known) < 0.8 * len(names)
        or not {"submit", "state", "jobid"} & {name.group().lower() for name in known}
    ):
        return None
    delimiter = line[names[0].end() : names[1].start()].replace('"', "")
    fits = delimiter and sum(part.strip('" \r').lower() in _KNOWN for part in line.split(delimiter)) >= len(known)
    return delimiter if fits else None


# -- lines to records ----------------------------------------------------------------------------


def sacct_records(text: str, report: CleaningReport) -> tuple[list[str], list[list[str]], list[int]]:
    """Column names in lower case, the records in that order, and the first line of each record."""
    lines = [line.rstrip("\r") for line in text.split("\n")]
    written = [i for i, line in enumerate(lines) if line.strip() and line[0] not in "#;"]
    top = next((i for i in written[:50] if sacct_delimiter(lines[i]) is not None), None)
    if top is None:  # It may be commented out.
        top = next((i for i, line in enumerate(lines[:50]) if sacct_delimiter(line) is not None), None)
    if top is None:
        fixed = field_list([lines[i] for i in written[:_INSPECTED]])
        if fixed is None:
            raise TraceError(
                "no sacct header in the first 50 lines; dump with: sacct -P --format=JobID,Submit,Start,End,..."
            )
        report.add("note", f"no header: columns as Open XDMoD prescribes them, {fixed[0]}")
        top, header, delimiter, names = -1, "", "|", list(fixed[1])
    else:
        delimiter = sacct_delimiter(lines[top]) or "|"
        header = lines[top]
        names = [name.strip().strip('"').lower() for name in split_line(header, delimiter)]
    records: list[list[str]] = []
    at: list[int] = []
    number_of = top + 1
    while number_of < len(lines):
        line = lines[number_of]
        number_of += 1
        if not line.strip() or line == header or (top < 0 and line[0] == "#"):
            continue
        report.rows_read += 1
        first, n_lines = number_of, 1
        fields = _fitted(line, names, delimiter)
        while fields is None and number_of < len(lines) and n_lines < MAX_LINES:
            if _begins_record(lines[number_of], names, delimiter):
                break  # The lines before it are a fragment.
            line = f"{line}\n{lines[number_of]}"
            number_of, n_lines = number_of + 1, n_lines + 1
            if line.count(delimiter) >= len(names) - 1:
                fields = _fitted(line, names, delimiter)
            if line.count(delimiter) > len(names) + MAX_EXTRA:
                break
        if fields is None:
            report.add("dropped", "a record that does not fit the columns", 1, first)
            continue
        if n_lines > 1:
            report.add("note", "line breaks inside a value: lines put together", 1, first)
        records.append(fields)
        at.append(first)
    return names, records, at


def _begins_record(line: str, names: list[str], delimiter: str) -> bool:
    """Whether this line is or begins a record, rather than continuing the previous value."""
    fields = line.split(delimiter)
    keys = [(name, value) for name, value in zip(names, fields[:-1], strict=False) if name in _KEYS]
    if len(keys) > 1 and all(value and _TYPED[name].fullmatch(value.strip()) for name, value in keys):
        return True
    return _fitted(line, names, delimiter) is not None


def _fitted(line: str, names: list[str], delimiter: str) -> list[str] | None:
    """The line's fields, one per column; None if no alignment matches the typed columns."""
    fields = split_line(line, delimiter)
    extra = len(fields) - len(names)
    if extra < 0 or extra > MAX_EXTRA:
        return None
    if extra == 0:
        keys = ((name, value) for name, value in zip(names, fields, strict=True) if name in _KEYS)
        return fields if all(_TYPED[name].fullmatch(value.strip()) for name, value in keys) else None
    # best[e]: minimum cost of aligning the columns so far with e extra pieces absorbed, and the start of each column.
    best: list[tuple[float, tuple[int, ...]] | None] = [(0.0, ())] + [None] * extra
    for column, name in enumerate(names):
        rule = _TYPED.get(name)
        lists = name in ("nodelist",) or "tres" in name
        cost_per_extra = _ABSORBS.get(name) if rule is None else None
        if rule is None and cost_per_extra is None:
            cost_per_extra = 5
        if delimiter == "," and lists:
            rule, cost_per_extra = None, 1
        after: list[tuple[float, tuple[int, ...]] | None] = [None] * (extra + 1)
        for used, alignment in enumerate(best):
            if alignment is None:
                continue
            cost, starts = alignment
            place = column + used
            if rule is not None:
                if rule.fullmatch(fields[place].strip()):
                    _keep_cheaper(after, used, cost, (*starts, place))
                elif name not in _KEYS:
                    _keep_cheaper(after, used, cost + 20, (*starts, place))
                continue
            assert cost_per_extra is not None
            for more in range(extra - used + 1):
                _keep_cheaper(after, used + more, cost + cost_per_extra * more, (*starts, place))
        best = after
    aligned = best[extra]
    if aligned is None:
        return None
    return [delimiter.join(fields[a:b]) for a, b in pairwise((*aligned[1], len(fields)))]


def _keep_cheaper(
    alignments: list[tuple[float, tuple[int, ...]] | None], slot: int, cost: float, starts: tuple[int, ...]
) -> None:
    current = alignments[slot]
    if current is None or cost < current[0]:
        alignments[slot] = (cost, starts)
