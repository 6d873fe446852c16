"""Fixtures that run kilowait commands in this process."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kilowait.cli import main

SWF = """; MaxProcs: 8
; UnixStartTime: 0
1   0  0 100 4 -1 -1 4 120 -1 1 1 1 -1 1 -1 -1 -1
2  10  0  50 8 -1 -1 8  60 -1 1 2 1 -1 1 -1 -1 -1
3  20  0  30 2 -1 -1 2  40 -1 1 1 1 -1 1 -1 -1 -1
4  30 -1  -1 2 -1 -1 2  40 -1 5 1 1 -1 1 -1 -1 -1
"""
CSV = "id,submitted,ran,limit_min,size\n1,0,60,2,4\n2,5,30,1,1\n"


@dataclass
class CommandResult:
    """Exit status, standard output and standard error of a command."""

    status: int
    out: str
    err: str

    def json(self) -> Any:
        assert self.status == 0, self.err
        return json.loads(self.out, parse_constant=lambda constant: pytest.fail(f"{constant} is no JSON"))

    def error(self) -> str:
        """The error message, which must be a single line; notes that were given before the error are left out."""
        assert self.status == 2, (self.status, self.out, self.err)
        lines = [line for line in self.err.splitlines(keepends=True) if not line.startswith("note: ")]
        assert len(lines) == 1 and lines[0].startswith("error: "), self.err
        assert self.out == ""
        return lines[0]


@pytest.fixture
def kilowait(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., CommandResult]:
    monkeypatch.delenv("COLUMNS", raising=False)  # pytest's workers set it

    def call(*args: object) -> CommandResult:
        capfd.readouterr()
        status = main([str(arg) for arg in args])
        out, err = capfd.readouterr()
        assert "Traceback" not in err
        assert "\x1b" not in out + err  # no colours where there is no terminal
        return CommandResult(status, out, err)

    return call


@pytest.fixture
def swf(tmp_path: Path) -> Path:
    """Four lines, three jobs."""
    path = tmp_path / "four.swf"
    path.write_text(SWF)
    return path


@pytest.fixture
def csv(tmp_path: Path) -> Path:
    path = tmp_path / "two.csv"
    path.write_text(CSV)
    return path
