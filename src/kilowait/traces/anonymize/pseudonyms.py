"""Pseudonyms by keyed hashing (HMAC-SHA256), and the secret key and its file."""

from __future__ import annotations

import hmac
import os
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

from kilowait.errors import InputError

__all__ = ["PseudonymKey", "check_key_location", "key_for", "pseudonym_numbers", "pseudonyms"]

KEY_BYTES = 32
"""Bytes of a key. A password is not enough: if it is guessed, all user names can be tried."""
DIGITS = 12
"""Hexadecimal digits of a pseudonym (48 bits): 100,000 names have a collision for one in 56,000 keys."""
LARGEST_NUMBER = 2**31 - 2
"""Pseudonyms in SWF are numbers from 1 to this, because many SWF readers use 32-bit integers."""
MAX_WEEKS = 520
"""Largest shift derived from the key, in weeks."""
_KEY_EXISTS = (
    "the key file {} already exists, and logs published with it could no longer be joined if it were replaced; omit "
    "--new-key to use it, or name another file"
)
_HEX = re.compile(r"[0-9a-fA-F]*")


@dataclass(frozen=True)
class PseudonymKey:
    """A secret key of at least 32 bytes; the same key gives the same pseudonyms.

    >>> key = PseudonymKey(bytes(range(32)))
    >>> key.digest("user", "ann") == key.digest("account", "ann"), key
    (False, PseudonymKey())
    """

    secret: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if len(self.secret) < KEY_BYTES:
            raise InputError(
                f"the key has {len(self.secret)} bytes, but needs at least {KEY_BYTES}; create one with --new-key"
            )

    @classmethod
    def fresh(cls) -> PseudonymKey:
        """A new key from the system's random generator; a key generated from a seed would not be secret."""
        return cls(secrets.token_bytes(KEY_BYTES))

    @classmethod
    def read(cls, path: str | PathLike[str]) -> PseudonymKey:
        """Read a key file of hexadecimal digits. A file that is readable by all users of the system is refused."""
        path = Path(path)
        try:
            mode = path.stat().st_mode
            text = path.read_text("ascii", "replace").strip()
        except FileNotFoundError:
            raise InputError(f"there is no key file {path}; create one with --new-key") from None
        except OSError as problem:
            raise InputError(f"cannot read the key file {path}: {problem.strerror or problem}") from None
        if mode & 0o007:
            raise InputError(
                f"the key file {path} is readable by all users of this system (mode {mode & 0o777:04o}); "
                f"restrict it: chmod 600 {path}"
            )
        if not _HEX.fullmatch(text) or len(text) % 2:
            raise InputError(
                f"the key file {path} does not contain a key of {2 * KEY_BYTES} hexadecimal digits; create one with "
                "--new-key"
            )
        try:
            return cls(bytes.fromhex(text))
        except InputError as problem:
            raise InputError(f"key file {path}: {problem}") from None

    def save(self, path: str | PathLike[str]) -> None:
        """Write the key to a new file that only its owner may read; an existing file is never replaced."""
        try:
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            raise InputError(_KEY_EXISTS.format(path)) from None
        except OSError as problem:
            raise InputError(f"cannot write the key file {path}: {problem.strerror or problem}") from None
        with os.fdopen(handle, "w", encoding="ascii") as file:
            file.write(f"{self.secret.hex()}\n")

    def digest(self, domain: str, text: str) -> bytes:
        """HMAC-SHA256 of a text. Domains are separate: a user and an account of the same name get different digests."""
        message = b"\0".join((b"kilowait/1", domain.encode(), text.encode("utf-8", "surrogatepass")))
        return hmac.digest(self.secret, message, "sha256")

    def shift_s(self) -> float:
        """Time shift derived from the key: 1 to 520 whole weeks, in seconds.

        >>> PseudonymKey(bytes(range(32))).shift_s() % (7 * 86400)
        0.0
        """
        weeks = 1 + int.from_bytes(self.digest("shift", "")[:8], "big") % MAX_WEEKS
        return weeks * 7 * 86400.0


def key_for(path: str | PathLike[str] | None, out: str | PathLike[str] | None, *, new: bool = False) -> PseudonymKey:
    """The key for publishing `out`: read from the file, or a new one that is not yet saved (see `PseudonymKey.save`).

    Without `out` nothing is published, and a temporary key is used.
    """
    if path is None:
        if out is not None or new:
            raise InputError(
                "pseudonyms need a key; name its file with --key-file, outside the folder of the published log"
            )
        return PseudonymKey.fresh()
    if out is not None:
        check_key_location(path, out)
    if not new:
        return PseudonymKey.read(path)
    if Path(path).exists():
        raise InputError(_KEY_EXISTS.format(path))
    if out is None:
        raise InputError(f"a new key {path} needs a log to publish; name it with --out")
    return PseudonymKey.fresh()


def check_key_location(key: str | PathLike[str], out: str | PathLike[str]) -> None:
    """Raise an InputError if the key file is inside the folder of the published log or its subfolders."""
    folder = Path(os.path.realpath(out)).parent
    if folder in (
        *Path(os.path.realpath(key)).parents,
        *Path(os.path.abspath(key)).parents,
    ):  # symbolic links inside the folder are refused too
        raise InputError(
            f"the key file {key} is inside {folder}, the folder of the published log, and could be published with it; "
            "keep the key elsewhere, or write to a separate folder: --out public/log.parquet"
        )


def pseudonyms(key: PseudonymKey, column: str, names: Sequence[str], *, digits: int = DIGITS) -> list[str]:
    """Pseudonym of every name: the column and the first `digits` hexadecimal digits of its keyed hash.

    >>> pseudonyms(PseudonymKey(bytes(range(32))), "user", ["ann", "bob"])
    ['user_75be4d780dbe', 'user_10e6c4bc7d58']
    """
    results = [f"{column}_{key.digest(column, name).hex()[:digits]}" for name in names]
    _refuse_collisions(column, names, results, f"{digits} hexadecimal digits", "create another key")
    return results


def pseudonym_numbers(key: PseudonymKey, column: str, names: Sequence[str], *, most: int = LARGEST_NUMBER) -> list[int]:
    """Number from 1 to `most` for every name, from the same keyed hash as `pseudonyms`.

    >>> pseudonym_numbers(PseudonymKey(bytes(range(32))), "user", ["ann", "bob"])
    [1749315719, 296354601]
    """
    results = [1 + int.from_bytes(key.digest(column, name)[:16], "big") % most for name in names]
    _refuse_collisions(column, names, results, f"numbers up to {most:,}", "write Parquet or CSV, where they are longer")
    return results


def _refuse_collisions(column: str, names: Sequence[str], results: Sequence[Any], size: str, remedy: str) -> None:
    first: dict[Any, str] = {}
    for name, pseudonym in zip(names, results, strict=True):
        other = first.setdefault(pseudonym, name)
        if other != name:
            raise InputError(
                f"{column} {other!r} and {name!r} both become {pseudonym}: {size} are too few here; {remedy}"
            )
