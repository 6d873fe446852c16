"""Control characters and markup in names are shown as escapes, never sent to the terminal."""

from __future__ import annotations

import json
import logging
import re
import subprocess
import sys
import warnings

import pytest

from kilowait.cli import console, main
from kilowait.cli.terminal import escaped, escaped_line

NASTY = "a\x1b]0;t\x07\x9b31m\x7f\u202eb\u2028c\rd"
SHOWN = r"a\x1b]0;t\x07\x9b31m\x7f\u202eb\u2028c\rd"
RAW = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")


@pytest.fixture
def hostile_log(tmp_path):
    """A log whose user, queue and account names contain control characters and markup."""
    rows = ["job_id,submit_s,runtime_s,nodes,user,queue,account"]
    rows += [f'{i},{i},10,1,"{NASTY}{i % 3}","[red]{NASTY}[/red]",":warning:\x1b[2J"' for i in range(1, 30)]
    path = tmp_path / "hostile.csv"
    path.write_bytes("\n".join(rows).encode())
    return path


def test_escaped():
    assert escaped(NASTY) == SHOWN
    assert (
        escaped("two\nlines\tand \udcff \ud800 \U000e0041 é – 日本")
        == "two\nlines\\tand \\xff \\ud800 \\U000e0041 é – 日本"
    )
    assert escaped_line("one\n  line\x1b") == "one line\\x1b"


@pytest.mark.parametrize("kind", ["user", "queue", "account"])
def test_names_in_tables(kilowait, hostile_log, kind):
    result = kilowait("simulate", hostile_log, "--cluster", "nodes:4", "--by", kind)
    assert result.status == 0, result.err
    assert not RAW.search(result.out + result.err)
    assert r"\x1b" in result.out
    assert ("[red]" in result.out) == (kind == "queue")


def test_names_in_json_are_json_escapes(kilowait, hostile_log):
    result = kilowait("simulate", hostile_log, "--cluster", "nodes:4", "--by", "user", "--json")
    assert not RAW.search(result.out)
    assert result.json()["by"]["rows"][0]["label"].startswith(NASTY.replace("\r", "\r"))


def test_names_of_files_and_policies_in_errors(kilowait, tmp_path):
    for args in (
        ("simulate", f"{NASTY}.swf"),
        ("simulate", "lublin:10:4", "--policy", NASTY),
        ("simulate", "lublin:10:4", f"--{NASTY}"),
        ("simulate", "lublin:10:4", "--load", NASTY),
        ("simulate", "lublin:10:4", "--cluster", f"{NASTY}.toml"),
        (NASTY,),
    ):
        result = kilowait(*args)
        assert result.status == 2
        assert not RAW.search(result.out + result.err), (args, result.err)
    out = tmp_path / f"out{NASTY}"
    result = kilowait("simulate", "lublin:10:4", "--out", out)
    assert result.status == 0, result.err
    assert not RAW.search(result.out) and r"\x1b" in result.out


def test_warnings_logs_and_notes(capfd):
    with console.plain_messages(), warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.getLogger("kilowait").warning("log %s", NASTY)
        warnings.warn(NASTY, stacklevel=1)
        console.note(NASTY)
    shown = SHOWN.replace(r"\r", " ")
    assert capfd.readouterr().err == f"log {shown}\nwarning: {shown}\nnote: {shown}\n"


def test_tables_titles_and_facts(monkeypatch, capfd):
    monkeypatch.setenv("COLUMNS", "300")
    console.title(f"[bold]{NASTY}\n")
    console.table([NASTY, "b\nc"], [[f"{NASTY}\n", "[red]x[/red]"]])
    console.facts([(NASTY, f"[red]{NASTY}\n")])
    out = capfd.readouterr().out
    assert not RAW.search(out)
    assert out.count("\n") == 5  # the header has two lines
    assert "[red]x[/red]" in out and "[bold]" in out


def test_progress_on_a_terminal(monkeypatch, capfd):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    with console.steps(3) as step:
        step(f"[red]{NASTY}", True)
    with console.busy(NASTY):
        console.note(NASTY)
    with console.status() as update:
        update(NASTY)
    err = capfd.readouterr().err
    assert r"[red]a\x1b]0;t\x07\x9b31m" in err
    assert not re.search("\x1b\\]|\x9b|\u202e|\x07", err)


def test_traceback_of_a_bug_is_escaped(monkeypatch):
    code = (
        "import sys\nimport kilowait.cli as cli, kilowait.experiments.scenario as s\n"
        "def bug(*_, **__): raise ZeroDivisionError('a\\x1b]0;t\\x07')\n"
        "s.run_scenario = bug\nsys.argv = ['kilowait', 'simulate', 'lublin:10:4']\nsys.exit(cli.main())"
    )
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert process.returncode == 1
    assert "ZeroDivisionError: a\\x1b]0;t\\x07" in process.stderr and "Traceback" in process.stderr
    assert not RAW.search(process.stderr)


def test_json_document_escapes_what_a_terminal_interprets(capfd):
    console.json_document({NASTY: "\x7f\u202e\udcff é"})
    out = capfd.readouterr().out
    assert not RAW.search(out) and "é" in out
    assert json.loads(out) == {NASTY: "\x7f\u202e\udcff é"}


def test_main_restores_the_streams(capfd):
    before = sys.stdout, sys.stderr
    assert main(["policies"]) == 0
    assert (sys.stdout, sys.stderr) == before
    capfd.readouterr()
