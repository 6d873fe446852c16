"""How settings are written: the fields of dataclasses on the command line, and parameters behind a name.

A settings dataclass owns the names, types, defaults and checks of its fields. `Option` adds what only the command line
needs. `kilowait.cli.options` makes the options of a command from the dataclasses that it fills.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import KW_ONLY, dataclass
from typing import Any

from kilowait.errors import InputError, UnknownNameError

NO_VALUE: Any = object()
"""Marks that an option without a value has the default of its field."""


@dataclass(frozen=True)
class Option:
    """The option of the command line that sets a field; an annotation of the field.

    >>> from typing import Annotated
    >>> @dataclass(frozen=True)
    ... class Arrivals:
    ...     load: Annotated[float | None, Option("TARGET", "Scale the arrivals to this offered load.")] = None
    """

    metavar: str | None
    """Placeholder of the value in the help; None: the type, or no value for a flag."""
    help: str
    flags: str = ""
    """Names, separated by blanks; without a name that begins with two dashes, ``--NAME`` is added."""
    _: KW_ONLY
    name: str = ""
    """Name of the parameter, if it is not that of the field; error messages use it."""
    min: float | None = None
    max: float | None = None
    parse: Callable[[Any], Any] | None = None
    """Converts the text, or the value of a flag, to the value of the field."""
    text: Callable[[Any], Any] | None = None
    """Converts the default of the field to the text, or the value of a flag, that `parse` reads."""
    default: Any = NO_VALUE
    """Value if the option is not given, where it differs from the default of the field."""
    show_default: bool = True

    def names(self, name: str) -> list[str]:
        """The names of the option for a parameter.

        >>> Option("N", "Number of windows.", "-w").names("num_windows")
        ['-w', '--num-windows']
        """
        names = self.flags.split()
        return names if any(flag.startswith("--") for flag in names) else [*names, f"--{name.replace('_', '-')}"]


@dataclass(frozen=True)
class Argument(Option):
    """A positional argument of the command line that sets a field."""


def named_parameters(kind: str, text: str, known: Collection[str]) -> dict[str, str]:
    """The parameters behind the name in a text such as ``random:seed=3``; `kind` is what the text names, for errors.

    >>> named_parameters("policy", "multifactor:age=500:max_age_s=3d", ["age", "max_age_s"])
    {'age': '500', 'max_age_s': '3d'}
    """
    name, *settings = text.strip().split(":")
    values: dict[str, str] = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals:
            raise InputError(f"{kind} {text!r}: {setting!r} is not written as name=value")
        if key not in known:
            raise UnknownNameError(f"parameter of {kind} {name!r}", key, known)
        values[key] = value
    return values
