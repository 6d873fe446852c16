"""docs/command-line.md: what it shows is what comes out."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "command-line.md"
BLOCKS = re.findall(r"^```console\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def calls(block: str) -> list[tuple[str, list[str]]]:
    """Commands with the lines they should print."""
    found: list[tuple[str, list[str]]] = []
    for line in block.splitlines():
        if line.startswith("$ kilowait "):
            found.append((line.removeprefix("$ kilowait "), []))
        else:
            found[-1][1].append(line)
    return found


def test_there_are_examples():
    assert len(BLOCKS) >= 8


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_what_is_shown_comes_out(kilowait, tmp_path, monkeypatch, number):
    monkeypatch.chdir(tmp_path)
    for command, shown in calls(BLOCKS[number]):
        said = kilowait(*shlex.split(command))
        lines = (said.out + said.err).splitlines()
        if shown[-1:] == ["..."]:
            shown, lines = shown[:-1], lines[: len(shown) - 1]
        assert lines == shown, command


def test_every_verb_is_spoken_of(kilowait):
    page = PAGE.read_text(encoding="utf-8")
    for verb in (
        "simulate",
        "compare",
        "traces describe",
        "traces convert",
        "traces list",
        "traces fetch",
        "bench",
    ):
        assert f"kilowait {verb}" in page
