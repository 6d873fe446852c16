"""The tables of docs/comparing.md and docs/energy.md equal the output of their commands."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAIRS = re.compile(r"^```sh\n(kilowait .*?)^```\n\n```text\n(.*?)^```", re.MULTILINE | re.DOTALL)
SHOWN = [
    (where, command, shown)
    for page, where in (("comparing.md", "swf"), ("energy.md", "."))
    for command, shown in PAIRS.findall((DOCS / page).read_text(encoding="utf-8"))
]


def test_pages_have_tables():
    assert len(SHOWN) == 4


@pytest.mark.parametrize(("where", "command", "shown"), SHOWN, ids=["policies", "mira", "theta", "polaris"])
def test_tables_equal_the_command_output(kilowait, data_dir, monkeypatch, where, command, shown):
    monkeypatch.chdir(data_dir / where)
    result = kilowait(*shlex.split(command.replace("\\\n", " "))[1:])
    assert result.status == 0
    printed = iter(result.out.splitlines())
    for line in shown.splitlines():
        assert line in printed, line
    assert len(shown.splitlines()) > 10
