"""Fields of JSON and TOML files: which a file must have, and what each may hold.

A format is described once, next to the code that reads it, as a `Record` of fields. `check_fields` compares a parsed
file with the description before any value is used; the error names the file and the field.

>>> POLICY = Record({"policy": Text(), "backfill": Either(Text(), Number(whole=True, minimum=0))})
>>> check_fields({"policy": "saf", "backfill": -1}, POLICY, "cases.json")
Traceback (most recent call last):
...
kilowait.errors.InputError: cases.json: backfill is -1; it must be text ..., or a whole number, at least 0
"""

from __future__ import annotations

import math
import reprlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from os import PathLike, fspath
from typing import Any

from kilowait.errors import InputError


def check_fields(data: Any, fields: Field, source: str | PathLike[str], *, remedy: str = "") -> None:
    """Raise an InputError that names the first field of `data` that is missing or invalid.

    Args:
        data: parsed JSON or TOML.
        fields: its description.
        source: the file, for the error.
        remedy: what to do about a damaged file, for the error.
    """
    try:
        fields.check(data)
    except FieldMismatch as mismatch:
        end = f"; {remedy}" if remedy else ""
        raise InputError(f"{fspath(source)}: {mismatch.text()}{end}") from None


class FieldMismatch(Exception):
    """A value that is not as described."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem
        self.path: list[str | int] = []
        """Names and positions from the innermost value to the outermost."""

    def text(self) -> str:
        """The path of the field and what is wrong with it."""
        name = ""
        for part in reversed(self.path):
            name += f"[{part}]" if isinstance(part, int) else f".{_shown_name(part)}" if name else _shown_name(part)
        return f"{name} {self.problem}" if name else f"it {self.problem}"


class Field(ABC):
    """Description of a value."""

    @property
    @abstractmethod
    def expected(self) -> str:
        """What the value must be, as text."""

    @abstractmethod
    def check(self, value: Any) -> None:
        """Raise a FieldMismatch unless the value is as described."""

    def refuse(self, value: Any) -> FieldMismatch:
        """The error for a value."""
        return FieldMismatch(f"is {_shown_value(value)}; it must be {self.expected}")


class Anything(Field):
    """Any value: shown to the reader as it is, or not used."""

    expected = "anything"

    def check(self, value: Any) -> None:
        """Accept everything."""


class Null(Field):
    """null: the value is not known."""

    expected = "null"

    def check(self, value: Any) -> None:
        """Accept null."""
        if value is not None:
            raise self.refuse(value)


class Flag(Field):
    """true or false."""

    expected = "true or false"

    def check(self, value: Any) -> None:
        """Accept a truth value."""
        if not isinstance(value, bool):
            raise self.refuse(value)


@dataclass(frozen=True)
class Number(Field):
    """A number within limits."""

    minimum: float = -math.inf
    maximum: float = math.inf
    whole: bool = False
    """Whether it has no fraction and fits into 64 bits."""
    finite: bool = True
    """Whether NaN and infinities are refused."""

    @property
    def expected(self) -> str:
        """What the value must be, as text."""
        return ("a whole number" if self.whole else "a number") + limits_text(self.minimum, self.maximum)

    def check(self, value: Any) -> None:
        """Accept a number within the limits."""
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.refuse(value)
        if not self.finite and not math.isfinite(value):
            return
        if not self.minimum <= value <= self.maximum or value - value != 0:
            raise self.refuse(value)
        if self.whole and (not isinstance(value, int) or not -(2**63) <= value < 2**63):
            raise self.refuse(value)


@dataclass(frozen=True)
class Text(Field):
    """Text of at most `maximum` characters, of a list of choices if they are given."""

    choices: tuple[str, ...] = ()
    maximum: int = 10_000

    @property
    def expected(self) -> str:
        """What the value must be, as text."""
        return f"one of {', '.join(self.choices)}" if self.choices else f"text of at most {self.maximum:,} characters"

    def check(self, value: Any) -> None:
        """Accept text."""
        if not isinstance(value, str) or len(value) > self.maximum or (self.choices and value not in self.choices):
            raise self.refuse(value)


class Either(Field):
    """A value as one of several descriptions, of which at most one is a list and at most one an object."""

    def __init__(self, *fields: Field) -> None:
        self.fields = fields

    @property
    def expected(self) -> str:
        """What the value must be, as text."""
        return ", or ".join(item.expected for item in self.fields)

    def check(self, value: Any) -> None:
        """Accept a value that one of the descriptions accepts."""
        deepest: FieldMismatch | None = None
        for item in self.fields:
            try:
                return item.check(value)
            except FieldMismatch as mismatch:
                deepest = mismatch if mismatch.path else deepest
        raise deepest or self.refuse(value)


@dataclass(frozen=True)
class Items(Field):
    """A list of values of one description."""

    item: Field
    minimum: int = 0
    maximum: float = math.inf
    """Least and greatest number of values."""
    ascending: bool = False
    """Whether every number is greater than the one before it."""

    @property
    def expected(self) -> str:
        """What the value must be, as text."""
        if self.ascending:
            return "a list of numbers in ascending order"
        if self.minimum == self.maximum:
            return f"a list of {self.minimum}"
        limits = f" of at least {self.minimum}" if self.minimum else ""
        return f"a list{limits}" + (f", at most {self.maximum:g} long" if self.maximum < math.inf else "")

    def check(self, value: Any) -> None:
        """Accept a list of such values."""
        if not isinstance(value, list) or not self.minimum <= len(value) <= self.maximum:
            raise self.refuse(value)
        check = self.item.check
        for number, item in enumerate(value):
            try:
                check(item)
            except FieldMismatch as mismatch:
                mismatch.path.append(number)
                raise
        if self.ascending and any(after <= before for before, after in pairwise(value)):
            raise self.refuse(value)


@dataclass(frozen=True)
class Values(Field):
    """An object with any names, whose values have one description."""

    value: Field
    minimum: int = 0
    expected = "an object"

    def check(self, value: Any) -> None:
        """Accept an object of such values."""
        if not isinstance(value, dict) or len(value) < self.minimum:
            raise self.refuse(value)
        for name, item in value.items():
            _check_member(self.value, name, item)


@dataclass(frozen=True)
class Record(Field):
    """An object with named fields; other names are ignored."""

    required: Mapping[str, Field]
    optional: Mapping[str, Field] = field(default_factory=dict)
    """Fields that may be missing."""
    equally_long: tuple[str, ...] = ()
    """Fields that are lists of one length."""
    expected = "an object"

    def check(self, value: Any) -> None:
        """Accept an object with these fields."""
        if not isinstance(value, dict):
            raise self.refuse(value)
        for name, item in self.required.items():
            if name not in value:
                mismatch = FieldMismatch("is missing")
                mismatch.path.append(name)
                raise mismatch
            _check_member(item, name, value[name])
        for name, item in self.optional.items():
            if name in value:
                _check_member(item, name, value[name])
        lengths = {name: len(value[name]) for name in self.equally_long if name in value}
        if len(set(lengths.values())) > 1:
            listed = ", ".join(f"{name} has {length:,} values" for name, length in lengths.items())
            raise FieldMismatch(f"has lists of different lengths: {listed}")


def limits_text(minimum: float, maximum: float) -> str:
    """The limits of a number as the end of a text; infinite ones are left out.

    >>> limits_text(0, float("inf"))
    ', at least 0'
    """
    text = f", at least {minimum:g}" if minimum > -math.inf else ""
    return text + (f", at most {maximum:g}" if maximum < math.inf else "")


def _check_member(description: Field, name: str, value: Any) -> None:
    try:
        description.check(value)
    except FieldMismatch as mismatch:
        mismatch.path.append(name)
        raise


def _shown_name(name: str) -> str:
    short = name if len(name) <= 60 else f"{name[:57]}..."
    return short if short.isprintable() and short else repr(short)


def _shown_value(value: Any) -> str:
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return f"a list of {len(value):,}"
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else reprlib.repr(value)
