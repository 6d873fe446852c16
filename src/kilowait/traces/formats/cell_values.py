"""Values of the cells of a table column; every value that is lost or changed is counted in the cleaning report."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from kilowait.traces.cell_parser import CodedNames, coded, megabytes, numbers, seconds
from kilowait.traces.clean import Flags, Floats
from kilowait.traces.cleaning_report import CleaningReport

UNKNOWN_WORDS = frozenset(
    "nan none null nil na n/a nat unknown undefined unlimited infinite inf infinity -inf -infinity - -- ? *".split()
) | {""}
"""Texts, in lower case, that state that a value is not known or not limited."""

PRIORITY_WORDS = {
    word: float(value)
    for value, words in {
        -2: "lowest",
        -1: "low",
        0: "normal medium default standard regular",
        1: "high",
        2: "highest urgent critical",
    }.items()
    for word in words.split()
}
"""Numbers of the usual words for priorities; 0 is also the priority of jobs without one."""

_TRUTH_WORDS = {"true": 1.0, "yes": 1.0, "false": 0.0, "no": 0.0}
_WHOLE_FLOAT = re.compile(r"^(\d+)\.0$")
_UNIT_END = re.compile(r"\d\s*[KMGTPkmgtp](?:i?[Bb])?$")


def report_lost(
    name: str,
    texts: Sequence[str],
    values: Floats,
    line: npt.NDArray[np.int64],
    report: CleaningReport,
    *,
    expected: str = "a number",
    required: bool = False,
) -> None:
    """Count the cells that have a text and no value, with an example.

    If the column is `required`, these rows are dropped later, and a note says why.

    >>> report = CleaningReport()
    >>> report_lost("cores", ["8", "many", ""], numbers(["8", "many", ""]), np.array([2, 3, 4]), report)
    >>> report.lines()[1]
    "corrected 1: cores: 'many' is not a number: treated as unknown (first: line 3)"
    """
    lost = unreadable(texts, values)
    if not lost.any():
        return
    found = {texts[row][:40] for row in np.flatnonzero(lost).tolist()}
    example = texts[int(lost.argmax())][:40]
    others = f" (and {len(found) - 1:,} other texts)" if len(found) > 1 else ""
    reason = f"{name}: {example!r}{others} is not {expected}: treated as unknown"
    report.add_rows("note" if required else "corrected", reason, lost, line)


def unreadable(texts: Sequence[str], values: Floats) -> Flags:
    """Cells that have a text other than `UNKNOWN_WORDS`, but no value.

    >>> unreadable(["8", "many", "", "N/A"], np.array([8, np.nan, np.nan, np.nan])).tolist()
    [False, True, False, False]
    """
    lost = np.isnan(values)
    for row in np.flatnonzero(lost).tolist():
        lost[row] = texts[row].lower() not in UNKNOWN_WORDS
    return lost


def durations(texts: Sequence[str], factor: float) -> Floats:
    """Seconds of time spans; the factor applies to plain numbers, not to spans such as 1:30:00.

    >>> durations(["2", "0:01:30", "soon"], 60.0).tolist()
    [120.0, 90.0, nan]
    """
    values = numbers(texts) * factor
    for row in np.flatnonzero(np.isnan(values)).tolist():
        values[row] = seconds(texts[row])
    return values


def quantities(name: str, texts: Sequence[str], line: npt.NDArray[np.int64], report: CleaningReport) -> Floats:
    """Numbers of a job column; words for priorities, truth values and amounts of memory with a unit are converted.

    >>> report = CleaningReport()
    >>> quantities("priority", ["high", "3", "low"], np.array([2, 3, 4]), report).tolist()
    [1.0, 3.0, -1.0]
    >>> report.lines()[1]
    'note 2: priority: words read as numbers: high 1, low -1 (first: line 2)'
    """
    values = numbers(texts)
    words = {"priority": PRIORITY_WORDS, "gpus_may_span_nodes": _TRUTH_WORDS}.get(name)
    if words is None and name != "memory_mb":
        return values
    texts_found: dict[str, float] = {}
    rows = np.isnan(values)
    for row in np.flatnonzero(rows).tolist():
        word = texts[row].lower()
        if words is not None:
            values[row] = words.get(word, np.nan)
        elif _UNIT_END.search(word):
            values[row] = megabytes(re.sub(r"\s|ib$", "", word))
        if not np.isnan(values[row]):
            texts_found.setdefault(word, float(values[row]))
    if words is None:
        reason = "memory_mb: amounts with a unit (K, M, G, T: powers of 1024) converted to MB of 10^6 bytes"
    else:
        read = ", ".join(f"{word} {value:g}" for word, value in sorted(texts_found.items()))
        reason = f"{name}: words read as numbers: {read}"
    report.add_rows("note", reason, rows & ~np.isnan(values), line)
    return values


def whole_names(name: str, texts: list[str], line: npt.NDArray[np.int64], report: CleaningReport) -> list[str]:
    """Names without the ".0" of whole numbers that were written as floats; a note counts them.

    >>> report = CleaningReport()
    >>> whole_names("user", ["7.0", "ann"], np.array([2, 3]), report), report.lines()[1]
    (['7', 'ann'], "note 1: user: numbers such as '7.0' are read as '7' (first: line 2)")
    """
    names = [_WHOLE_FLOAT.sub(r"\1", text) for text in texts]
    changed = np.fromiter((old != new for old, new in zip(texts, names, strict=True)), np.bool_, len(names))
    if not changed.any():
        return texts
    first = int(changed.argmax())
    report.add_rows("note", f"{name}: numbers such as {texts[first]!r} are read as {names[first]!r}", changed, line)
    return names


def job_numbers(
    texts: Sequence[str], line: npt.NDArray[np.int64], report: CleaningReport
) -> tuple[Floats, CodedNames | None]:
    """Job numbers, and the texts of job IDs that are not numbers: these get numbers after the largest.

    >>> ids, names = job_numbers(["7", "a-1", "a-2"], np.array([2, 3, 4]), CleaningReport())
    >>> ids.tolist(), names
    ([7.0, 8.0, 9.0], (array([-1,  0,  1], dtype=int32), ('a-1', 'a-2')))
    """
    values = numbers(texts)
    named = unreadable(texts, values)
    if not named.any():
        return values, None
    codes, names = coded([text if row else "" for text, row in zip(texts, named.tolist(), strict=True)])
    largest = np.max(values, initial=0.0, where=np.abs(values) < 2.0**53)
    values[named] = largest + 1 + codes[named]
    report.add_rows("note", "job_id is text: the job is numbered, and the text is in the column log_id", named, line)
    return values, (codes, names)


def job_references(
    texts: Sequence[str], ids: Mapping[str, float], line: npt.NDArray[np.int64], report: CleaningReport
) -> Floats:
    """Job numbers of references to other jobs, by number or by the text of their ID in `ids`.

    >>> job_references(["", "a-1", "7"], {"7": 7.0, "a-1": 8.0}, np.arange(3), CleaningReport()).tolist()
    [nan, 8.0, 7.0]
    """
    values = numbers(texts)
    for row in np.flatnonzero(unreadable(texts, values)).tolist():
        values[row] = ids.get(texts[row], np.nan)
    report_lost("after_id", texts, values, line, report, expected="the ID of a job in the table")
    return values
