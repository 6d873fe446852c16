"""Download of logs of public archives (`traces.catalogue`) into a cache, with checksums and resumed downloads."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from os import PathLike
from pathlib import Path

from kilowait.errors import InputError, TraceError, UnknownNameError
from kilowait.files import write_text
from kilowait.traces.catalogue import ARCHIVE_LOGS, ARCHIVES, ArchivedLog

TRIES = 3
"""Maximum connections per call; each resumes the download where the last one failed."""
Progress = Callable[[int, int | None], None]


def default_cache() -> Path:
    """The folder of fetched logs in the user's cache directory."""
    from platformdirs import user_cache_path

    return user_cache_path("kilowait") / "traces"


def fetch(
    name: str,
    *,
    base_url: str | None = None,
    cache_dir: str | PathLike[str] | None = None,
    timeout_s: float = 30.0,
    allow_unpinned: bool = False,
    progress: Progress | None = None,
) -> Path:
    """The path of an archived log, downloaded unless it is in the cache.

    An interrupted download is kept and resumed. The sha256 is stored next to the file after the download and checked
    at every later use.

    Args:
        name: one of `ARCHIVE_LOGS` (case-insensitive), or the name of its file.
        base_url: of a mirror of the archive.
        cache_dir: folder of the files.
        timeout_s: of a connection, seconds.
        allow_unpinned: download also logs without a checksum in the catalogue, whose content is not verified.
        progress: called with the bytes received and the total bytes (None if the server does not say).

    >>> fetch("kth-sp")
    Traceback (most recent call last):
    ...
    kilowait.errors.UnknownNameError: unknown archived log 'kth-sp'; did you mean 'kth-sp2'? known: ...
    """
    log = _archived_log(name)
    base_url = ARCHIVES[log.archive].base_url if base_url is None else base_url
    if not base_url.startswith(("http://", "https://")):
        raise InputError(f"base_url is {base_url!r}; it must begin with http:// or https://")
    folder = Path(cache_dir) if cache_dir is not None else default_cache()
    target = folder / log.file
    try:
        if target.exists():
            return _checked(target, log)
        if log.sha256 is None and not allow_unpinned:
            raise InputError(
                f"no checksum of {log.file} is known, so a damaged or changed file would not be noticed; download "
                "it without verification with --allow-unpinned (allow_unpinned=True)"
            )
        folder.mkdir(parents=True, exist_ok=True)
        url = f"{base_url.rstrip('/')}/{log.path}"
        part = _downloaded(url, target, timeout_s, progress)
        digest = _sha256(part)
        wrong = _fault(part, digest, log)
        if wrong is not None:
            part.unlink()
            raise TraceError(
                f"the file from {url} is not {target.name}: {wrong}. It was deleted. It is probably a proxy's page or "
                f"a damaged copy: try again, or copy the file to {target} manually"
            )
        write_text(_sidecar(target), f"{digest}  {target.name}\n")
        os.replace(part, target)
    except OSError as problem:
        raise TraceError(f"cannot store {target.name} in {folder}: {problem}; give another cache_dir") from None
    return target


def _archived_log(name: str) -> ArchivedLog:
    for log in ARCHIVE_LOGS.values():
        if name == log.file:
            return log
    try:
        return ARCHIVE_LOGS[name.lower()]
    except KeyError:
        raise UnknownNameError("archived log", name, ARCHIVE_LOGS) from None


def _fault(part: Path, digest: str, log: ArchivedLog) -> str | None:
    """What is wrong with a downloaded file; None: nothing."""
    with part.open("rb") as file:
        if log.file.endswith(".gz") and file.read(2) != b"\x1f\x8b":
            return "it is not a gzip file"
    if log.sha256 is not None and digest != log.sha256:
        return f"its sha256 begins {digest[:16]}, not {log.sha256[:16]}"
    return None


def _sidecar(target: Path) -> Path:
    return target.with_name(f"{target.name}.sha256")


def _sha256(path: Path) -> str:
    import hashlib

    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _checked(target: Path, log: ArchivedLog) -> Path:
    """The cached file, after its checksum was verified."""
    digest = _sha256(target)
    side = _sidecar(target)
    expected = side.read_text(encoding="ascii", errors="replace").split(" ")[0] if side.exists() else ""
    expected = expected or log.sha256 or ""
    if not digest.startswith(expected):
        raise TraceError(
            f"{target} has changed since it was fetched: its sha256 begins {digest[:16]}, not {expected[:16]}; "
            "delete it and fetch again"
        )
    if not side.exists():
        write_text(side, f"{digest}  {target.name}\n")
    return target


def _downloaded(url: str, target: Path, timeout_s: float, progress: Progress | None) -> Path:
    """Download the complete file under a .part name, resuming from an existing part."""
    import http.client
    import urllib.error

    part = target.with_name(f"{target.name}.part")
    problem: object = "the connection failed each time"
    for _ in range(TRIES):
        received = part.stat().st_size if part.exists() else 0
        try:
            if _stream(url, part, received, timeout_s, progress):
                return part
        except urllib.error.HTTPError as answer:
            if answer.code == 416 and received:  # The local part does not match the remote file: restart.
                part.unlink()
                continue
            problem = f"the server answered {answer.code} {answer.reason}"
            if answer.code < 500:
                break
        except (urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError) as broken:
            problem = getattr(broken, "reason", None) or broken
            if part.exists() and part.stat().st_size > received:
                continue
            if not isinstance(broken, (http.client.HTTPException, ConnectionResetError)):
                break
    received_bytes = part.stat().st_size if part.exists() else 0
    state = (
        f"{received_bytes:,} bytes are kept and the next fetch resumes from there"
        if received_bytes
        else "nothing was changed"
    )
    raise TraceError(
        f"cannot download {url}: {problem}; {state}. Without a network, get the file elsewhere and copy it to {target}"
    )


def _stream(url: str, part: Path, received: int, timeout_s: float, progress: Progress | None) -> bool:
    """Append the server's data to the part; True if the file is complete."""
    import urllib.request

    request = urllib.request.Request(url, headers={"User-Agent": "kilowait"})
    if received:
        request.add_header("Range", f"bytes={received}-")
    with urllib.request.urlopen(request, timeout=timeout_s) as answer:
        length = answer.headers.get("Content-Length")
        total = int(length) if length is not None and length.isdigit() else None
        span = re.match(r"bytes (\d+)-\d+/(\d+)", answer.headers.get("Content-Range") or "")
        if answer.status == 206 and span is not None and int(span.group(1)) == received:
            total = int(span.group(2))
        else:
            received = 0  # The server sends the whole file.
        with part.open("ab" if received else "wb") as file:
            while block := answer.read(1 << 16):
                file.write(block)
                received += len(block)
                if progress is not None:
                    progress(received, total)
    return total is None or received == total
