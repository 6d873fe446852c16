"""Closed, full and narrow-encoded output streams, and interrupts: a message or silence, never a traceback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

SHELL = f"{sys.executable} -m kilowait.cli"
COMMANDS = ["--help", "simulate nowhere.swf", "simulate", "policies --json"]


def shell(line: str, **settings):
    return subprocess.run(line, shell=True, capture_output=True, text=True, timeout=120, check=False, **settings)


@pytest.mark.parametrize("buffered", [True, False])
@pytest.mark.parametrize("command", [*COMMANDS, "--version", "clusters"])
def test_full_standard_output(command, buffered, monkeypatch):
    monkeypatch.setenv("PYTHONUNBUFFERED", "" if buffered else "1")
    done = shell(f"{SHELL} {command} > /dev/full")
    if "nowhere" in command or command == "simulate":
        assert done.returncode == 2
    else:
        assert (done.returncode, done.stderr) == (
            2,
            "error: standard output cannot be written: No space left on device; "
            "redirect it to a file on another disk\n",
        )
    assert "Traceback" not in done.stderr and "Exception" not in done.stderr


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-", "2>/dev/full", ">/dev/full 2>/dev/full"])
def test_closed_streams(command, closed):
    done = shell(f"{SHELL} {command} {closed}")
    fails = "nowhere" in command or command == "simulate" or ">/dev/full 2" in closed
    assert done.returncode == (2 if fails else 0), done
    assert "Traceback" not in done.stdout + done.stderr and "Exception" not in done.stdout + done.stderr
    if "nowhere" in command and "2>" in closed:
        assert done.stdout == "", "errors must not be written to standard output"


def test_no_file_takes_the_number_of_a_closed_stream(tmp_path):
    done = shell(f"{SHELL} simulate lublin:20:4 --out {tmp_path}/run >&- 2>&-")
    assert done.returncode == 0
    assert shell(f"{SHELL} report {tmp_path}/run").returncode == 0


@pytest.mark.parametrize("command", ["--help", "policies", "policies --json", "clusters"])
def test_closed_pipe(command):
    done = shell(f"{{ {SHELL} {command}; echo $? >&2; }} | true")
    assert done.stderr in ("1\n", "0\n")


def test_narrow_encoding_of_the_output(tmp_path):
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "LC_ALL": "C"}
    for command in (
        "simulate --help",
        "clusters",
        "clusters --json",
        "simulate lublin:10:4:0.9 --power mira",
        "simulate é",
    ):
        done = shell(f"{SHELL} {command}", env=environment)
        assert done.returncode in (0, 2), done.stderr
        assert "Traceback" not in done.stderr
        assert (done.stdout + done.stderr).isascii()


@pytest.mark.parametrize("delay_s", [0.0, 0.03, 0.08, 0.15, 0.6])
def test_interrupt_at_any_time(delay_s):
    """The interpreter's own start, before any line of kilowait runs, is left out."""
    code = (
        "import sys, kilowait.cli; sys.argv = ['kilowait', 'simulate', 'lublin:2000000:512:0.9', '--policy', 'saf']; "
        "sys.stdout.write('x'); sys.stdout.flush(); sys.exit(kilowait.cli.main())"
    )
    for _ in range(5):
        child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert child.stdout is not None and child.stderr is not None
        assert child.stdout.read(1) == b"x"
        time.sleep(delay_s)
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=60)
        if b'File "<string>", line 1, in <module>\nKeyboardInterrupt' not in err:  # else before main was called
            break
    if delay_s > 0:
        assert (child.returncode, out) == (130, b""), err
    assert child.returncode == 130, err
    assert err.replace(b"compiling", b"").endswith(b"interrupted\n") and b"Traceback" not in err


def test_interrupt_that_was_ignored_stays_ignored():
    code = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN); from kilowait.cli import main; "
        "status = main(['--version']); sys.exit(status or signal.getsignal(signal.SIGINT) != signal.SIG_IGN)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, stdout=subprocess.DEVNULL).returncode == 0
