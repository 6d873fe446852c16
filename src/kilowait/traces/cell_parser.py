"""Parsing of single cells: numbers, time spans, dates, amounts of memory, names."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Sequence
from datetime import UTC, datetime

import numpy as np
import numpy.typing as npt

from kilowait.errors import InputError
from kilowait.units import parse_duration

CodedNames = tuple[npt.NDArray[np.int32], tuple[str, ...] | None]
"""A coded column of names: codes with -1 for unknown, and the names (None: the codes are the original numbers)."""

_UNIT = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40, "P": 2**50}


def number(text: str) -> float:
    """The number in a cell, NaN if it is not a number.

    >>> number(" 12.5 "), number("n/a"), number("1_000")
    (12.5, nan, nan)
    """
    try:
        value = float(text) if "_" not in text else math.nan
    except ValueError:
        return math.nan
    return value if math.isfinite(value) else math.nan


def numbers(texts: Sequence[str]) -> npt.NDArray[np.float64]:
    """`number` of every cell; fast if all of them are numbers.

    >>> numbers(["1", "2.5"]).tolist(), numbers(["1", ""]).tolist()
    ([1.0, 2.5], [1.0, nan])
    """
    try:
        values = np.array(list(map(float, texts)), np.float64)
    except ValueError:
        return np.array([number(text) for text in texts], np.float64)
    if any("_" in text for text in texts):
        return np.array([number(text) for text in texts], np.float64)
    return np.where(np.isfinite(values), values, np.nan)


def seconds(text: str) -> float:
    """Seconds of a time span, given as a number or in Slurm's format; NaN if it is neither.

    >>> seconds("3600.5"), seconds("1-02:00:00"), seconds("UNLIMITED")
    (3600.5, 93600.0, nan)
    """
    if ":" not in text and "-" not in text[1:]:
        return number(text)
    try:
        return parse_duration(text) if len(text) < 30 else math.nan
    except InputError:
        return math.nan


def unix_s(text: str) -> float:
    """Unix seconds of an ISO date and time (without a zone: UTC) or of a number; NaN if it is neither.

    >>> unix_s("2019-01-01T00:00:36"), unix_s("1546300836"), unix_s("Unknown")
    (1546300836.0, 1546300836.0, nan)
    """
    if len(text) < 10 or text[4] != "-":
        return number(text)
    try:
        when = datetime.fromisoformat(text.strip().removesuffix(" UTC"))
        return (when if when.tzinfo is not None else when.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return math.nan


def megabytes(text: str) -> float:
    """MB (10^6 bytes) of a memory amount of Slurm without its n or c suffix; a plain number is in MiB.

    >>> megabytes("4000M"), megabytes("1G"), megabytes("none")
    (4194.304, 1073.741824, nan)
    """
    match = re.fullmatch(r"\s*(\d{1,15}(?:\.\d{1,9})?)([KMGTP]?)B?\s*", text, re.IGNORECASE)
    return float(match.group(1)) * _UNIT[match.group(2).upper() or "M"] / 1e6 if match else math.nan


def split_line(line: str, delimiter: str) -> list[str]:
    """Fields of a line; quotes are respected for CSV delimiters."""
    if '"' in line and delimiter in (",", ";", "\t"):
        try:
            return next(csv.reader([line], delimiter=delimiter), [])
        except csv.Error:
            pass
    return line.split(delimiter)


def coded(values: list[str], unknown: frozenset[str] = frozenset({""})) -> CodedNames:
    """Encode a column of words as codes and names; whole numbers that fit are kept as codes.

    >>> coded(["7", "", "12"])[0].tolist(), coded(["b", "a", "b"])[0].tolist()
    ([7, -1, 12], [0, 1, 0])
    """
    codes_of: dict[str, int] = {}
    codes = np.fromiter(
        (-1 if value in unknown else codes_of.setdefault(value, len(codes_of)) for value in values),
        np.int32,
        len(values),
    )
    if all(word.isascii() and word.isdigit() and len(word) < 10 and str(int(word)) == word for word in codes_of):
        numbers = np.array([int(word) for word in codes_of] + [-1], np.int32)
        return numbers[codes], None
    return codes, tuple(codes_of)
