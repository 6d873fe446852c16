"""Secrets of carbon-intensity services: a token, or a user name and a password. They are never written to a file."""

from __future__ import annotations

import base64
import os
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

from kilowait.errors import InputError, MeterError

TOKEN = "ELECTRICITYMAPS_TOKEN"
"""Environment variable with the token of Electricity Maps."""
USER, PASSWORD = "WATTTIME_USER", "WATTTIME_PASSWORD"
"""Environment variables with the user name and the password of WattTime; those of its own client."""
MAX_TOKEN_AGE_S = 25 * 60.0
"""Age at which a token is replaced; WattTime's are valid for 30 minutes."""


@dataclass
class Login:
    """A user name and a password, and the token that the service gave for them.

    >>> login = Login("https://api.watttime.org/login", "ann", "secret")
    >>> login.accept({"token": "abc"}, 0.0)
    >>> login.bearer(), login.has_token(60.0), login.has_token(3600.0)
    ('Bearer abc', True, False)
    """

    url: str
    """Where the token is requested."""
    user: str
    password: str = field(repr=False)
    token: str | None = field(default=None, repr=False)
    received_s: float = 0.0
    """Unix time at which the token was received."""

    def basic(self) -> str:
        """Value of the header Authorization of the request for a token."""
        return "Basic " + base64.b64encode(f"{self.user}:{self.password}".encode()).decode("ascii")

    def bearer(self) -> str:
        """Value of the header Authorization of other requests."""
        return f"Bearer {self.token}"

    def has_token(self, now_s: float) -> bool:
        """Whether there is a token that is still valid at this Unix time, seconds."""
        return self.token is not None and 0 <= now_s - self.received_s <= MAX_TOKEN_AGE_S

    def accept(self, response: Any, now_s: float) -> None:
        """Take the token from the response of the service."""
        token = response.get("token") if isinstance(response, dict) else None
        if not isinstance(token, str) or not (token.isascii() and token.isprintable()):
            raise MeterError(f"the response of {self.url} has no token; check the base URL")
        self.token, self.received_s = token, now_s


def read_token(file: str | PathLike[str] | None) -> str:
    """The token of Electricity Maps: the content of `file`, else of the environment variable `TOKEN`."""
    if file is None:
        token, origin = os.environ.get(TOKEN, "").strip(), f"the environment variable {TOKEN}"
    else:
        origin = str(file)
        token = _content(file, "the token")
    if not token:
        raise InputError(
            f"Electricity Maps needs a token, but {origin} has none; put it there, or into a file given with "
            "--token-file"
        )
    if not (token.isascii() and token.isprintable() and " " not in token):
        raise InputError(f"the content of {origin} is not a token: it must be one word of printable ASCII")
    return token


def read_login(file: str | PathLike[str] | None, url: str) -> Login:
    """The login of WattTime: the two lines of `file`, user name and password, else two environment variables.

    Args:
        file: a text file; None: the environment variables `USER` and `PASSWORD`.
        url: where the token is requested.
    """
    if file is None:
        parts, origin = [os.environ.get(USER, ""), os.environ.get(PASSWORD, "")], f"{USER} and {PASSWORD}"
    else:
        parts, origin = _content(file, "the login").splitlines(), str(file)
    parts = [part.strip() for part in parts]
    if len(parts) != 2 or not all(part and part.isprintable() for part in parts) or ":" in parts[0]:
        raise InputError(
            f"WattTime needs a user name and a password, but {origin} has none; set both environment variables "
            f"({USER}, {PASSWORD}), or write them into the two lines of a file given with --token-file"
        )
    return Login(url, parts[0], parts[1])


def _content(file: str | PathLike[str], what: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as problem:
        raise InputError(f"cannot read {what} in {file}: {getattr(problem, 'strerror', problem)}") from None
