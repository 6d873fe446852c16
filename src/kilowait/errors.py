"""The exception tree. Every message gives the fact, the value and the remedy.

::

    KilowaitError
    ├── InputError            a file or value handed in is wrong
    │   ├── TraceError        a job log cannot be read, or not strictly
    │   ├── TableError        a JobTable breaks its own rules; names the row
    │   └── ClusterError      a cluster description is impossible
    ├── UnknownNameError      no such policy, preset, format, column ... (with "did you mean")
    ├── ChoiceError           a decider asked for something impossible; names job, time, reason
    ├── MeterError            a meter or a service does not answer: no driver, no permission, no network
    └── MissingExtraError     an optional dependency is not installed; names the extra
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

__all__ = [
    "ChoiceError",
    "ClusterError",
    "InputError",
    "KilowaitError",
    "MeterError",
    "MissingExtraError",
    "TableError",
    "TraceError",
    "UnknownNameError",
]


class KilowaitError(Exception):
    """Base of everything kilowait raises on purpose."""


class InputError(KilowaitError, ValueError):
    """A file or a value handed in is wrong."""


class TraceError(InputError):
    """A job log cannot be read."""


class TableError(InputError):
    """A job table breaks its own rules."""


class ClusterError(InputError):
    """A cluster description is impossible."""


class ChoiceError(KilowaitError):
    """A decider asked for something the machine cannot do now."""


class MeterError(KilowaitError):
    """A meter or a service cannot be read, or what it said cannot be kept."""


class UnknownNameError(KilowaitError, LookupError):
    """A name that is not in a registry; suggests the nearest ones.

    >>> raise UnknownNameError("policy", "sfj", ["fcfs", "sjf", "saf"])
    Traceback (most recent call last):
    ...
    kilowait.errors.UnknownNameError: unknown policy 'sfj'; did you mean 'sjf'? known: fcfs, saf, sjf
    >>> str(UnknownNameError("generator", "sdv:tvae", ["sdv:TVAE", "tvae"])).partition(";")[2]
    " did you mean 'sdv:TVAE'? known: sdv:TVAE, tvae"
    """

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        self.kind, self.name, self.known = kind, name, sorted(known)
        lowered = {one.lower(): one for one in self.known}
        near = get_close_matches(name.lower(), lowered, n=1, cutoff=0.5)
        hint = f"; did you mean {lowered[near[0]]!r}?" if near else ";"
        super().__init__(f"unknown {kind} {name!r}{hint} known: {', '.join(self.known)}")

    def __reduce__(self) -> tuple[type[UnknownNameError], tuple[str, str, list[str]]]:
        """Worker processes send exceptions back pickled."""
        return type(self), (self.kind, self.name, self.known)


class MissingExtraError(KilowaitError, ImportError):
    """An optional dependency is missing.

    >>> str(MissingExtraError("pandas", "pandas"))
    "this needs pandas, which is not installed: pip install 'kilowait[pandas]'"
    """

    def __init__(self, package: str, extra: str) -> None:
        self.package, self.extra = package, extra
        super().__init__(f"this needs {package}, which is not installed: pip install 'kilowait[{extra}]'")

    def __reduce__(self) -> tuple[type[MissingExtraError], tuple[str, str]]:
        """Worker processes send exceptions back pickled."""
        return type(self), (self.package, self.extra)
