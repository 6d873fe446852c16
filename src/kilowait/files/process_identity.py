"""Identity of a process: user, host, boot, process namespace, process id and start time.

A process id alone is not enough: ids are reused, every host and every container counts its own, and all begin again
after a boot.
"""

from __future__ import annotations

import getpass
import hashlib
import os
import re
import socket
import time
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

__all__ = ["ProcessIdentity", "current_process"]

_PROC = Path("/proc")
_MAX_TEXT = 300
_MAX_PID = 2**31 - 1


@dataclass(frozen=True)
class ProcessIdentity:
    """One process on one host. Texts are empty where the operating system does not give them."""

    user: str
    host: str
    machine: str
    """Digest of the machine id: it distinguishes hosts of the same name."""
    boot: str
    """Random id of the boot of the host."""
    namespace: str
    """Namespace of the process ids: containers on one host have their own."""
    pid: int
    start: str
    """Start time, in clock ticks since the boot."""

    def to_dict(self) -> dict[str, Any]:
        """The identity as plain data."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Any) -> ProcessIdentity | None:
        """The identity of `to_dict`; None if the data are anything else.

        >>> ProcessIdentity.from_dict({"user": "anna", "pid": "4"}) is None
        True
        """
        if not isinstance(data, dict):
            return None
        values = {item.name: data.get(item.name) for item in fields(cls)}
        pid = values.pop("pid")
        if type(pid) is not int or not 0 < pid <= _MAX_PID:
            return None
        texts: dict[str, str] = {}
        for name, value in values.items():
            if not isinstance(value, str) or len(value) > _MAX_TEXT or not (value.isprintable() or not value):
                return None
            texts[name] = value
        return cls(pid=pid, **texts) if texts["host"] else None

    def is_running(self) -> bool | None:
        """Whether the process exists; None if that cannot be known from here: it is on another host or in a container.

        >>> current_process().is_running()
        True
        """
        here = current_process()
        if self.host != here.host:
            return None
        if self.boot != here.boot:
            # The host was booted since, or is another one with the same name.
            return False if self.machine and self.machine == here.machine else None
        if self.namespace != here.namespace:
            return None
        start = _start(self.pid)
        if start is None:
            return False
        return start == self.start if start and self.start else None

    def __str__(self) -> str:
        """The process for messages."""
        return f"user {self.user or 'unknown'} on host {self.host}, process {self.pid}{self._started()}"

    def _started(self) -> str:
        """The start time as a date, where the boot of this host tells it."""
        if not self.start.isdecimal() or not self.boot or self.boot != _boot():
            return ""
        try:
            uptime_s = time.clock_gettime(time.CLOCK_BOOTTIME)
            started_s = time.time() - uptime_s + int(self.start) / os.sysconf("SC_CLK_TCK")
            return f" (started {datetime.fromtimestamp(started_s, UTC):%Y-%m-%d %H:%M:%S} UTC)"
        except (AttributeError, OSError, ValueError, OverflowError):
            return ""


def current_process() -> ProcessIdentity:
    """The identity of this process.

    >>> current_process().pid == os.getpid()
    True
    """
    pid = os.getpid()
    return ProcessIdentity(
        user=_user(),
        host=_printable(socket.gethostname()) or "unknown",
        machine=_machine(),
        boot=_boot(),
        namespace=_namespace(),
        pid=pid,
        start=_start(pid) or "",
    )


def _user() -> str:
    try:
        return _printable(getpass.getuser())
    except (KeyError, OSError, ImportError):  # a user id without a name, as in containers
        return str(os.getuid()) if hasattr(os, "getuid") else ""


def _printable(text: str) -> str:
    return "".join(letter for letter in text if letter.isprintable())[:_MAX_TEXT]


def _boot() -> str:
    return _read(_PROC / "sys/kernel/random/boot_id")


def _machine() -> str:
    text = _read(Path("/etc/machine-id"))
    return hashlib.sha256(f"kilowait {text}".encode()).hexdigest()[:16] if text else ""  # the id itself is confidential


def _namespace() -> str:
    try:
        return os.readlink(_PROC / "self/ns/pid")
    except OSError:
        return ""


def _read(path: Path) -> str:
    try:
        return _printable(path.read_text(encoding="ascii", errors="replace").strip())
    except OSError:
        return ""


def _start(pid: int) -> str | None:
    """Start time of a process in ticks, empty where the system does not tell it; None if there is no such process."""
    if not (_PROC / "self/stat").exists():
        return "" if _exists(pid) else None
    try:
        text = (_PROC / str(pid) / "stat").read_text(encoding="ascii", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None if not _exists(pid) else ""  # other users' processes may be hidden in /proc
    except OSError:
        return ""
    # The name of the program is in parentheses and may contain spaces and parentheses.
    state, *rest = re.sub(r"^.*\)\s*", "", text, flags=re.DOTALL).split()
    return None if state in ("Z", "X", "x") else rest[18]


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it belongs to another user
        return True
    return True
