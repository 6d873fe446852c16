"""Exception classes. Every message gives the fact, the value and the remedy.

::

    KilowaitError
    ├── InputError            a file or an argument is invalid
    │   ├── TraceError        a job log cannot be read, or breaks a rule of strict reading
    │   ├── TableError        a JobTable has an invalid value; names the row
    │   └── ClusterError      a cluster description is invalid
    ├── UnknownNameError      no such policy, preset, format, column ... (with "did you mean")
    ├── ChoiceError           a scheduler asked for an impossible action; names job, time, reason
    ├── LockError             an output folder is being written by another process, or cannot be locked
    ├── TrainingError         a training failed: names the update, the cause and the last good checkpoint
    ├── NoProgressError       a policy starts no waiting job although nothing runs; names job, request, policy
    ├── MeterError            a power meter or a web service cannot be read: no driver, no permission, no network
    └── MissingExtraError     an optional dependency is not installed; names the extra
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class KilowaitError(Exception):
    """Base of everything kilowait raises on purpose."""


class InputError(KilowaitError, ValueError):
    """A file or an argument is invalid."""


class TraceError(InputError):
    """A job log cannot be read."""


class TableError(InputError):
    """A job table has an invalid value or column."""


class ClusterError(InputError):
    """A cluster description is invalid."""


class ChoiceError(KilowaitError):
    """A scheduler asked for an action that is impossible at this instant."""


class LockError(KilowaitError):
    """An output folder is being written by another process, or its lock file cannot be created."""


class TrainingError(KilowaitError, RuntimeError):
    """Training failed: names the update, the cause and the last good checkpoint."""


class NoProgressError(KilowaitError):
    """The run would not end: the policy starts no waiting job, or jobs preempt each other and keep no work."""


class MeterError(KilowaitError):
    """A power meter or a web service cannot be read, or its answer cannot be stored."""


class UnknownNameError(KilowaitError, LookupError):
    """A name that is not in a registry; suggests the most similar one.

    >>> raise UnknownNameError("policy", "sfj", ["fcfs", "sjf", "saf"])
    Traceback (most recent call last):
    ...
    kilowait.errors.UnknownNameError: unknown policy 'sfj'; did you mean 'sjf'? known: fcfs, saf, sjf
    >>> str(UnknownNameError("generator", "sdv:tvae", ["sdv:TVAE", "tvae"])).partition(";")[2]
    " did you mean 'sdv:TVAE'? known: sdv:TVAE, tvae"
    """

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        self.kind, self.name, self.known = kind, name, sorted(known)
        lowered = {known_name.lower(): known_name for known_name in self.known}
        near = get_close_matches(name.lower(), lowered, n=1, cutoff=0.5)
        hint = f"; did you mean {lowered[near[0]]!r}?" if near else ";"
        super().__init__(f"unknown {kind} {name!r}{hint} known: {', '.join(self.known)}")

    def __reduce__(self) -> tuple[type[UnknownNameError], tuple[str, str, list[str]]]:
        """Support pickling: worker processes return exceptions pickled."""
        return type(self), (self.kind, self.name, self.known)


class MissingExtraError(KilowaitError, ImportError):
    """An optional dependency is missing.

    >>> str(MissingExtraError("pandas", "pandas")).partition(": ")[0]
    'this needs pandas, which is not installed'
    """

    def __init__(self, package: str, extra: str | None) -> None:
        """`extra`: the extra of kilowait that holds the package; None: no extra does."""
        self.package, self.extra = package, extra
        command = f"pip install {package}" if extra is None else install_command(extra)
        super().__init__(f"this needs {package}, which is not installed: {command}")

    def __reduce__(self) -> tuple[type[MissingExtraError], tuple[str, str | None]]:
        """Support pickling: worker processes return exceptions pickled."""
        return type(self), (self.package, self.extra)


def install_command(extra: str) -> str:
    """The pip command that installs an extra (``learn``) the way kilowait was installed.

    pip records in ``direct_url.json`` that a distribution came from a folder, an archive or a repository: there
    ``pip install kilowait`` would fetch another kilowait.

    >>> "learn" in install_command("learn")
    True
    """
    import json
    from importlib import metadata

    try:
        text = metadata.distribution("kilowait").read_text("direct_url.json")
        origin = json.loads(text) if text else {}
    except (metadata.PackageNotFoundError, OSError, ValueError):
        origin = {}
    return _command(extra, origin if isinstance(origin, dict) else {})


def _command(extra: str, origin: dict[str, object]) -> str:
    """The command for the content of direct_url.json.

    >>> _command("learn", {})
    "pip install 'kilowait[learn]'"
    >>> _command("learn", {"url": "file:///src/my%20kilowait", "dir_info": {"editable": True}})
    "pip install -e '/src/my kilowait[learn]'"
    >>> _command("learn", {"url": "https://example.org/k.git", "vcs_info": {"vcs": "git", "requested_revision": "v1"}})
    "pip install 'kilowait[learn] @ git+https://example.org/k.git@v1'"
    """
    import shlex
    from urllib.parse import unquote, urlsplit

    address = str(origin.get("url", ""))
    vcs, folder = origin.get("vcs_info"), origin.get("dir_info")
    if isinstance(vcs, dict) and address:
        revision = vcs.get("requested_revision")
        address = f"{vcs.get('vcs', 'git')}+{address}" + (f"@{revision}" if revision else "")
        return f"pip install {shlex.quote(f'kilowait[{extra}] @ {address}')}"
    parts = urlsplit(address)
    if parts.scheme == "file" and parts.path:
        editable = "-e " if isinstance(folder, dict) and folder.get("editable") else ""
        return f"pip install {editable}{shlex.quote(f'{unquote(parts.path)}[{extra}]')}"
    if address:
        return f"pip install {shlex.quote(f'kilowait[{extra}] @ {address}')}"
    return f"pip install {shlex.quote(f'kilowait[{extra}]')}"
