"""docs/comparing.md: its table is what its command prints."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "comparing.md").read_text(encoding="utf-8")


def test_the_table_is_what_the_command_prints(kilowait, data_dir, monkeypatch):
    monkeypatch.chdir(data_dir / "swf")
    (command,) = re.findall(r"^kilowait (compare .*?[^\\])$", PAGE, re.MULTILINE | re.DOTALL)
    (shown,) = re.findall(r"^```text\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    said = kilowait(*shlex.split(command.replace("\\\n", " ")))
    assert said.status == 0
    printed = iter(said.out.splitlines())
    for line in shown.splitlines():
        assert line in printed, line
    assert len(shown.splitlines()) > 60
