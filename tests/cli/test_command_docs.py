"""docs/command-line.md, docs/gpu.md and docs/privacy.md show what the commands print."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE, GPU_PAGE, PRIVACY_PAGE = DOCS / "command-line.md", DOCS / "gpu.md", DOCS / "privacy.md"


def blocks(page: Path) -> list[str]:
    return re.findall(r"^```console\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def files(page: Path) -> list[tuple[str, str]]:
    """Names and contents of the files that a page shows."""
    named = r"`(\w+\.csv)`[^`]*\n\n```text\n(.*?)^```"
    return re.findall(named, page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


BLOCKS = [(page, block) for page in (PAGE, GPU_PAGE, PRIVACY_PAGE) for block in blocks(page)]


def calls(block: str) -> list[tuple[str, list[str]]]:
    """Commands with their expected output lines."""
    found: list[tuple[str, list[str]]] = []
    for line in block.splitlines():
        if line.startswith("$ kilowait "):
            found.append((line.removeprefix("$ kilowait "), []))
        else:
            found[-1][1].append(line)
    return found


def test_pages_have_examples():
    assert len(blocks(PAGE)) >= 8 and len(blocks(GPU_PAGE)) >= 6
    assert blocks(PRIVACY_PAGE)
    assert [name for name, _ in files(GPU_PAGE)] == ["nodes.csv", "jobs.csv"]


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_shown_output_is_printed(kilowait, tmp_path, monkeypatch, number):
    monkeypatch.chdir(tmp_path)
    page, block = BLOCKS[number]
    for name, content in files(page):
        Path(name).write_text(content)
    for command, shown in calls(block):
        result = kilowait(*shlex.split(command))
        lines = (result.out + result.err).splitlines()
        lines = [line for line in lines if not line.startswith("compiling the ")]
        if shown[-1:] == ["..."]:
            shown, lines = shown[:-1], lines[: len(shown) - 1]
        assert lines == shown, command


def test_page_mentions_every_command(kilowait):
    page = PAGE.read_text(encoding="utf-8")
    for verb in (
        "simulate",
        "compare",
        "traces describe",
        "traces convert",
        "traces anonymize",
        "traces list",
        "traces fetch",
        "synth fit",
        "synth sample",
        "synth score",
        "synth list",
        "predict features",
        "predict score",
        "predict fit",
        "predict apply",
        "predict explain",
        "predict describe",
        "energy template",
        "bench",
    ):
        assert f"kilowait {verb}" in page
