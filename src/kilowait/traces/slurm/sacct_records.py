"""Lines of a ``sacct -P`` dump to records.

sacct escapes nothing: a job name may hold delimiters and a submit line line breaks. Lines are put together into
records, and a record with too many fields is laid along the columns so that every typed column fits.
"""

from __future__ import annotations

import re
from itertools import pairwise

from kilowait.errors import TraceError
from kilowait.traces.cleaning_report import CleaningReport
from kilowait.traces.parse import split_line

__all__ = ["sacct_delimiter", "sacct_records"]

_TIMES = "Submit Eligible Start End"
_SPANS = (
    "Elapsed CPUTime TotalCPU UserCPU SystemCPU Timelimit Reserved Planned ResvCPU PlannedCPU "
    "Suspended AveCPU MinCPU"
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
"""Columns a record must fit; in the others a strange value only makes a layout less likely."""
MOST_LINES = 500
"""Physical lines one record may take."""
MOST_EXTRA = 64
"""Delimiters inside the values of one record."""


def sacct_delimiter(line: str) -> str | None:
    """What separates the columns when this line is a header of sacct's, else None.

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
    fits = delimiter and sum(part.strip('" \r').lower() in _KNOWN for part in line.split(delimiter)) >= len(
        known
    )
    return delimiter if fits else None


# -- lines to records ----------------------------------------------------------------------------


def sacct_records(text: str, ledger: CleaningReport) -> tuple[list[str], list[list[str]], list[int]]:
    """Column names in lower case, the records in that order, and each one's first line."""
    lines = [line.rstrip("\r") for line in text.split("\n")]
    top = next((i for i, line in enumerate(lines[:50]) if sacct_delimiter(line) is not None), None)
    if top is None:
        raise TraceError(
            "no header of sacct's in the first 50 lines; dump with: sacct -P --format=JobID,Submit,Start,End,..."
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
        ledger.rows_read += 1
        first, taken = number_of, 1
        fields = _fitted(line, names, delimiter)
        while fields is None and number_of < len(lines) and taken < MOST_LINES:
            if _begins_record(lines[number_of], names, delimiter):
                break  # What came before it is a fragment.
            line = f"{line}\n{lines[number_of]}"
            number_of, taken = number_of + 1, taken + 1
            if line.count(delimiter) >= len(names) - 1:
                fields = _fitted(line, names, delimiter)
            if line.count(delimiter) > len(names) + MOST_EXTRA:
                break
        if fields is None:
            ledger.add("dropped", "a record that does not fit the columns", 1, first)
            continue
        if taken > 1:
            ledger.add("note", "line breaks inside a value: lines put together", 1, first)
        records.append(fields)
        at.append(first)
    return names, records, at


def _begins_record(line: str, names: list[str], delimiter: str) -> bool:
    """Whether this line is a record, or the beginning of one, and no part of the value before it."""
    fields = line.split(delimiter)
    keys = [(name, value) for name, value in zip(names, fields[:-1], strict=False) if name in _KEYS]
    if len(keys) > 1 and all(value and _TYPED[name].fullmatch(value.strip()) for name, value in keys):
        return True
    return _fitted(line, names, delimiter) is not None


def _fitted(line: str, names: list[str], delimiter: str) -> list[str] | None:
    """The line's fields, one per column; None when no way to lay them fits the typed columns."""
    fields = split_line(line, delimiter)
    extra = len(fields) - len(names)
    if extra < 0 or extra > MOST_EXTRA:
        return None
    if extra == 0:
        keys = ((name, value) for name, value in zip(names, fields, strict=True) if name in _KEYS)
        return fields if all(_TYPED[name].fullmatch(value.strip()) for name, value in keys) else None
    # best[e]: cheapest way to lay the columns so far with e extra pieces absorbed, and where each column starts.
    best: list[tuple[float, tuple[int, ...]] | None] = [(0.0, ())] + [None] * extra
    for column, name in enumerate(names):
        rule = _TYPED.get(name)
        lists = name in ("nodelist",) or "tres" in name
        price = _ABSORBS.get(name) if rule is None else None
        if rule is None and price is None:
            price = 5
        if delimiter == "," and lists:
            rule, price = None, 1
        after: list[tuple[float, tuple[int, ...]] | None] = [None] * (extra + 1)
        for used, way in enumerate(best):
            if way is None:
                continue
            cost, starts = way
            place = column + used
            if rule is not None:
                if rule.fullmatch(fields[place].strip()):
                    _keep(after, used, cost, (*starts, place))
                elif name not in _KEYS:
                    _keep(after, used, cost + 20, (*starts, place))
                continue
            assert price is not None
            for more in range(extra - used + 1):
                _keep(after, used + more, cost + price * more, (*starts, place))
        best = after
    laid = best[extra]
    if laid is None:
        return None
    return [delimiter.join(fields[a:b]) for a, b in pairwise((*laid[1], len(fields)))]


def _keep(
    ways: list[tuple[float, tuple[int, ...]] | None], slot: int, cost: float, starts: tuple[int, ...]
) -> None:
    held = ways[slot]
    if held is None or cost < held[0]:
        ways[slot] = (cost, starts)
