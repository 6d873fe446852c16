"""Lock files: creation, staleness and takeover; identity of the process that holds one.

A lock file is created with all its content by a hard link, which exactly one process can do, also on NFS; where there
are no hard links, by O_EXCL. It names its owner. A stale lock is replaced only by the holder of a second lock,
``LOCK.takeover``, who reads it once more: two processes never take over the same lock.

The lock of a process on this host, in this container, is stale when that process no longer exists. Of other hosts that
cannot be known: their locks, and files that cannot be read, are stale when they were not refreshed for `STALE_S`.

A process is identified by user, host, boot, process namespace, process id and start time. A process id alone is not
enough: ids are reused, every host and every container counts its own, and all begin again after a boot.
"""

from __future__ import annotations

import errno
import getpass
import hashlib
import json
import os
import random
import re
import secrets
import socket
import stat
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kilowait.errors import LockError
from kilowait.files.leftovers import partial_path

HEARTBEAT_S = 20.0
"""Interval at which the holder refreshes its lock file, seconds."""
STALE_S = 300.0
"""Age after which a lock of another host is stale if it was not refreshed, seconds."""
FORMAT = "kilowait lock"
_MAX_BYTES = 8192
_MAX_DEPTH = 8
_WAIT_S = 5.0
"""Time to wait for another process that is taking over the same lock, seconds."""
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV, errno.EINVAL)

own_tokens: set[str] = set()
"""Tokens of the locks that this process holds or is about to create."""

_PROC = Path("/proc")
_MACHINE_IDS = (Path("/etc/machine-id"), Path("/var/lib/dbus/machine-id"))
_NETWORK_CARDS = Path("/sys/class/net")
_MAX_TEXT = 300
_MAX_PID = 2**31 - 1


@dataclass(frozen=True)
class LockRecord:
    """Content of a lock file: the owner, the date in UTC, and a random token of this lock."""

    owner: ProcessIdentity
    date: str
    token: str

    def to_bytes(self) -> bytes:
        """The content of the file."""
        data = {"format": FORMAT, **self.owner.to_dict(), "date": self.date, "token": self.token}
        return f"{json.dumps(data, indent=1)}\n".encode()

    @classmethod
    def from_bytes(cls, content: bytes) -> LockRecord | None:
        """The record; None for anything that kilowait did not write."""
        try:
            data = json.loads(content)
        except (ValueError, RecursionError):
            return None
        owner = ProcessIdentity.from_dict(data)
        if owner is None or data.get("format") != FORMAT:
            return None
        date, token = data.get("date"), data.get("token")
        for text in (date, token):
            if not isinstance(text, str) or not 0 < len(text) <= 100 or not text.isprintable():
                return None
        return cls(owner, date, token)


@dataclass(frozen=True)
class LockFile:
    """An existing lock file as it was read."""

    path: Path
    record: LockRecord | None
    """None if the content cannot be understood."""
    modified_s: float
    identity: tuple[int, int, bytes]
    """Inode, time of the last change unless it is refreshed, and content: another lock differs in it."""

    def is_stale(self, now_s: float) -> bool:
        """Whether the owner no longer exists; `now_s` is the time by the clock of the file server."""
        if self.record is not None:
            owner = self.record.owner
            running = owner.is_running()
            if running and owner == current_process():
                return self.record.token not in own_tokens  # left by an interrupted acquisition
            if running is not None:
                return not running
        return abs(now_s - self.modified_s) > STALE_S

    def describe_owner(self) -> str:
        """The owner and the date of the lock, for messages."""
        if self.record is None:
            return "an unknown process: the lock file cannot be read"
        return f"{self.record.owner}, since {self.record.date}"


def new_record() -> LockRecord:
    """The record of a lock that this process is about to create."""
    date = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    return LockRecord(current_process(), date, secrets.token_hex(16))


def read_lock(path: Path) -> LockFile | None:
    """The lock file at `path`; None if there is none. Anything but a regular file raises a LockError."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as problem:
        if problem.errno in (errno.ELOOP, errno.ENXIO):  # a symbolic link, a socket
            raise _not_a_lock(path) from None
        raise LockError(f"cannot read the lock file {path}: {problem.strerror or problem}; remove it") from None
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise _not_a_lock(path)
        content = os.read(handle, _MAX_BYTES + 1)
    except OSError as problem:
        if problem.errno == errno.ESTALE:  # removed by another host meanwhile
            return None
        raise LockError(f"cannot read the lock file {path}: {problem.strerror or problem}; remove it") from None
    finally:
        os.close(handle)
    record = LockRecord.from_bytes(content) if len(content) <= _MAX_BYTES else None
    changed_ns = 0 if record is not None else status.st_mtime_ns  # the owner refreshes the time
    return LockFile(path, record, status.st_mtime, (status.st_ino, changed_ns, content))


def _not_a_lock(path: Path) -> LockError:
    return LockError(f"{path} is not a regular file, but the name is that of a lock file; remove it")


def create_lock(path: Path, what: str, *, depth: int = 0) -> tuple[LockRecord, LockFile | None]:
    """Create the lock file; returns its record, and the stale lock that was taken over, if any.

    Args:
        path: the lock file.
        what: the file or folder that is locked, for messages.
        depth: number of takeover locks above this one.
    """
    record = new_record()
    own_tokens.add(record.token)
    try:
        return record, _create(path, what, record, depth)
    except BaseException:
        release_lock(path, record)
        raise


def _create(path: Path, what: str, record: LockRecord, depth: int) -> LockFile | None:
    deadline = time.monotonic() + _WAIT_S
    while True:
        late = time.monotonic() > deadline
        candidate = partial_path(path)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            now_s = _write_new(candidate, record.to_bytes())
            if _link(candidate, path, record):
                return None
            existing = read_lock(path)
            if existing is not None:
                if not existing.is_stale(now_s):
                    raise locked_error(existing, what, now_s)
                if _take_over(candidate, existing, what, depth, deadline):
                    return existing
        except OSError as problem:
            # A folder without content, or a leftover of this name, is removed by another process now and then.
            if not isinstance(problem, FileNotFoundError) or late:
                raise LockError(
                    f"cannot write {what}: its lock file {path} cannot be created: {problem.strerror or problem}; "
                    "name a folder that you can write in"
                ) from None
        finally:
            with suppress(OSError):
                candidate.unlink(missing_ok=True)
        if late:
            raise LockError(f"cannot lock {what}: its lock file {path} keeps changing; repeat the command")


def _take_over(candidate: Path, stale: LockFile, what: str, depth: int, deadline: float) -> bool:
    """Replace a stale lock by the candidate; False if it has changed since it was read."""
    if depth >= _MAX_DEPTH:
        raise LockError(f"cannot take over the lock of {what}; remove {stale.path} and the files beside it")
    second = stale.path.with_name(f"{stale.path.name}.takeover")
    try:
        record, _ = create_lock(second, what, depth=depth + 1)
    except LockError:
        if time.monotonic() > deadline or not os.path.lexists(stale.path):
            raise
        time.sleep(random.uniform(0.002, 0.02))
        return False
    try:
        again = read_lock(stale.path)
        if again is None or again.identity != stale.identity:
            return False
        os.replace(candidate, stale.path)
        return True
    finally:
        release_lock(second, record)


def release_lock(path: Path, record: LockRecord) -> None:
    """Remove the lock file if it is still this one; errors are ignored: without its process the lock is stale."""
    own_tokens.discard(record.token)
    with suppress(LockError, OSError):
        found = read_lock(path)
        if found is not None and found.record == record:
            path.unlink()


def locked_error(existing: LockFile, what: str, now_s: float) -> LockError:
    """The error of a lock that another process holds."""
    record = existing.record
    age_s = max(0.0, now_s - existing.modified_s)
    if record is None:
        return LockError(
            f"{what} is locked, but its lock file {existing.path} cannot be read: wait for {STALE_S - age_s:.0f} s, "
            "after which it is stale, or remove it if no kilowait process writes there"
        )
    foreign = record.owner.is_running() is None
    heartbeat = (
        f" The lock was refreshed {age_s:.0f} s ago; it is stale {STALE_S:.0f} s after the last time."
        if foreign
        else ""
    )
    return LockError(
        f"{what} is being written by {existing.describe_owner()}: wait until that process ends, stop it, or name "
        f"another folder.{heartbeat} Lock file: {existing.path}"
    )


def _write_new(path: Path, content: bytes) -> float:
    """Write a new file; returns its time of modification, by the clock of the file server."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    try:
        os.write(handle, content)
        os.fsync(handle)
        return os.fstat(handle).st_mtime
    finally:
        os.close(handle)


def _link(candidate: Path, path: Path, record: LockRecord) -> bool:
    """Give the candidate the name of the lock file; False if that name exists."""
    try:
        os.link(candidate, path, follow_symlinks=False)
        return True
    except FileExistsError:
        # On NFS the answer may be lost, and the repeated request fails although the first one succeeded.
        return candidate.stat().st_nlink == 2
    except OSError as problem:
        if problem.errno not in _NO_LINKS:
            raise
    try:
        _write_new(path, record.to_bytes())
        return True
    except FileExistsError:
        return False


# -- processes -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ProcessIdentity:
    """One process on one host. Texts are empty where the operating system does not give them."""

    user: str
    host: str
    machine: str
    """Digest of what identifies the machine: it distinguishes hosts of the same name."""
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
    """Digest of the machine id or, without one, of the addresses of the network cards; empty without either."""
    ids = (_read(path) for path in _MACHINE_IDS)
    text = next((text for text in ids if re.fullmatch("[0-9a-f]{32}", text)), "") or _network_addresses()
    return hashlib.sha256(f"kilowait {text}".encode()).hexdigest()[:16] if text else ""  # the id itself is confidential


def _network_addresses() -> str:
    """Addresses of network cards given by the manufacturer; those given by software are shared by virtual machines."""
    texts = {_read(card / "address") for card in _NETWORK_CARDS.glob("*") if (card / "device").exists()}
    by_manufacturer = re.compile("(?!00:00:00:00:00:00)[0-9a-f][048c](:[0-9a-f]{2}){5}")
    return " ".join(sorted(text for text in texts if by_manufacturer.fullmatch(text)))


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
