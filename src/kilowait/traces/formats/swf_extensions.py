"""Fields 19 to 21 of extended SWF lines: the forms of Alea and of Frontier's log; the names of other extra fields."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from kilowait.traces.cell_parser import CodedNames, coded, number
from kilowait.traces.clean import RawColumns
from kilowait.traces.cleaning_report import CleaningReport

Extra = tuple[str, str, str]
"""Fields 19, 20 and 21 of a line."""
Form = Literal["alea", "frontier"]
_PLACEMENT = re.compile(r"([^\s:]+):([^\s:]+):(\d{1,9})x(\d{1,6})")
"""Partition, whether the nodes are exclusive, nodes x cores per node: frontier:excl:2500x112."""


def extended_form(extras: Sequence[Extra]) -> Form | None:
    """The form of 21-field lines; None if fields 19 to 21 have no known meaning.

    >>> extended_form([("{12,12}", "q_1d", "1:ppn=2")]), extended_form([("16", "-1", "frontier:excl:2x112")])
    ('alea', 'frontier')
    >>> extended_form([("1", "2", "3")])
    """
    if not extras:
        return None
    if all(extra[0].startswith("{") for extra in extras):
        return "alea"
    placed = sum(_PLACEMENT.fullmatch(extra[2]) is not None for extra in extras)
    return "frontier" if placed * 2 >= len(extras) else None


class Placements(NamedTuple):
    """Fields 19 to 21 of Frontier's log as columns, NaN where a line has no placement."""

    nodes: npt.NDArray[np.float64]
    cores: npt.NDArray[np.float64]
    """In total: nodes times cores per node."""
    gpus: npt.NDArray[np.float64]
    partition: CodedNames


def read_placements(extras: Sequence[Extra], line: npt.NDArray[np.int64], report: CleaningReport) -> Placements:
    """The nodes, cores, GPUs and partitions of each line of Frontier's log.

    >>> found = read_placements([("16", "-1", "frontier:excl:2x112")], np.array([1]), CleaningReport())
    >>> found.nodes.tolist(), found.cores.tolist(), found.gpus.tolist(), found.partition[1]
    ([2.0], [224.0], [16.0], ('frontier',))
    """
    matches = [_PLACEMENT.fullmatch(extra[2]) for extra in extras]
    sizes = np.array([(float(m[3]), float(m[4])) if m else (np.nan, np.nan) for m in matches], np.float64)
    gpus = np.array([number(extra[0]) for extra in extras], np.float64)
    soft = np.array([number(extra[1]) for extra in extras], np.float64)
    report.add_rows("note", "soft wall time (field 20) left out: it has no column", soft >= 0, line)
    words = [m[2] if m else "" for m in matches]
    for word in sorted(set(words) - {"", "excl"}):
        shared = np.array([each == word for each in words], np.bool_)
        report.add_rows("note", f"nodes are not exclusive (field 21: {word}): read as whole nodes", shared, line)
    gpus[gpus < 0] = np.nan
    return Placements(sizes[:, 0], sizes[:, 0] * sizes[:, 1], gpus, coded([m[1] if m else "" for m in matches]))


def use_placements(
    draft: RawColumns, found: Placements, allocated: npt.NDArray[np.float64], report: CleaningReport
) -> None:
    """Use the nodes of field 21 instead of processors allocated (field 5), which count nodes or cores."""
    known = found.nodes >= 1
    differs = known & (allocated > 0) & (allocated != found.nodes)
    reason = "nodes by field 21 differ from processors allocated (field 5), which may be cores: field 21 used"
    report.add_rows("note", reason, differs, draft.line)
    reason = "no nodes x cores in field 21: processors of field 5 or 8 used"
    report.add_rows("corrected", reason, ~known, draft.line)
    draft.numbers |= {"cores": found.cores, "gpus": found.gpus}


def extra_field_names(comments: Sequence[str], width: int) -> dict[int, str]:
    """Names of the fields after the 18th, by a comment with as many names as lines have fields.

    >>> extra_field_names(["; " + " ".join(f"f{n}" for n in range(1, 18)) + " Think Job-Status"], 19)
    {19: 'Job-Status'}
    """
    for comment in comments:
        words = comment.lstrip("; #\t").split()
        if len(words) == width and all(word[0].isalpha() for word in words):
            return {place: words[place - 1] for place in range(19, width + 1)}
    return {}


def report_extra_fields(
    known: Sequence[tuple[int, int]], comments: Sequence[str], used: Sequence[int], report: CleaningReport
) -> None:
    """Name each field after the 18th that is not read, with its number of known values.

    `known` has for each of these fields the number of values other than -1, and the line of the first.
    """
    names = extra_field_names(comments, 18 + len(known))
    for place, (count, line) in enumerate(known, start=19):
        if place not in used and count:
            name = f" ({names[place]})" if place in names else ""
            report.add("note", f"field {place}{name} left out: SWF has 18 fields", count, line)
