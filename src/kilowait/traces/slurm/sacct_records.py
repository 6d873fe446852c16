"""Parsing of the lines of a ``sacct -P`` dump into records.

sacct does not escape values: a job name may contain delimiters and a submit line line breaks. Lines are joined into
records, and a record with too many fields is aligned with the columns so that every typed column matches.
"""

from __future__ import annotations

import re
from itertools import pairwise

from kilowait.errors import TraceError
from kilowait.traces.cell_parser import split_line
from kilowait.traces.cleaning_report import CleaningReport

__all__ = ["sacct_delimiter", "sacct_records"]

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
    "JobID JobIDRaw": r"\d+(?:_\[?[\d,%:-]+\]?)?(?:\+\d+)?(?:\.\w+)?(?:\+\d+)?",
    "State": r"(?:[A-Z_]{1,15}\+?(?: by \S+)?)?",
}
_TYPED = {name.lower(): re.compile(rule) for names, rule in _PATTERNS.items() for name in names.split()}
_ABSORBS = {name.lower(): 1 for name in _LIKELY.split()} | {name.lower(): 3 for name in _FREE.split()}
_KNOWN = frozenset(_TYPED) | frozenset(_ABSORBS)

_KEYS = frozenset({"jobid", "jobidraw", "submit", "start", "end", "state"})
"""Columns that must match in an alignment; in the others a mismatch only increases its cost."""
MAX_LINES = 500
"""Maximum physical lines per record."""
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
        raise TraceError(
            "no sacct header in the first 50 lines; dump with: sacct -P --format=JobID,Submit,Start,End,..."
        )
    delimiter = sacct_delimiter(lines[top]) or "|"
    header = lines[top]
    names = [name.strip().strip('"').lower() for name in split_line(header, delimiter)]
    records: list[list[str]] = []
    at: list[int] = []
    number_of = top + 1
    while number_of < len(lines):
        line = lines[number_of]
        number_of += 1
        if not line.strip() or line == header:
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
