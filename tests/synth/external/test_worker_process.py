"""Another Python is run, heard and, where it must be, ended."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from kilowait.errors import InputError
from kilowait.synth.external.worker_process import run_worker


@pytest.fixture
def program(tmp_path):
    """A program that stands where the user names a Python."""

    def written(lines: str) -> str:
        path = tmp_path / "python"
        path.write_text(f"#!/bin/sh\n{lines}\n")
        path.chmod(0o755)
        return str(path)

    return written


def run(python: str, folder: Path, told=lambda what, share: None) -> None:
    run_worker(python, "fit", folder, install="Install it.", activity="fitting", progress=told)


def test_progress_bars_are_passed_on(program, tmp_path):
    heard = []
    run(
        program(r"printf 'Epoch 3:  25%%|##   | 1/4\r' >&2; sleep 0.2; echo '100%|####| 4/4'"),
        tmp_path,
        lambda what, share: heard.append((what, share)),
    )
    assert heard[0] == ("fitting", 0.0) and heard[-1] == ("fitting", 1.0)
    assert ("fitting", 0.25) in heard


def test_a_failure_is_told_by_its_last_words(program, tmp_path):
    with pytest.raises(
        InputError, match="fitting, the library failed in .*/python: ValueError: too few"
    ) as told:
        run(program("echo Traceback >&2; echo 'ValueError: too few' >&2; exit 1"), tmp_path)
    assert "Traceback" in str(told.value.__cause__)


def test_one_that_says_nothing(program, tmp_path):
    with pytest.raises(InputError, match="no output"):
        run(program("exit 9"), tmp_path)


def test_no_such_python(tmp_path):
    with pytest.raises(InputError, match="python=/nowhere/python is not a program; name the Python of"):
        run("/nowhere/python", tmp_path)


def test_a_python_that_cannot_be_run(tmp_path):
    (tmp_path / "python").write_bytes(b"\x7fELF, not really")
    (tmp_path / "python").chmod(0o755)
    with pytest.raises(InputError, match="cannot be run"):
        run(str(tmp_path / "python"), tmp_path)


def test_an_interruption_ends_it(program, tmp_path):
    def interrupted(what, share):
        if share > 0:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(program(f"echo $$ > {tmp_path}/pid; echo '10%|#'; exec sleep 60"), tmp_path, interrupted)
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_paths_meant_for_this_python_are_kept_from_another(program, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "/somewhere")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    echo = program(
        f"echo path=$PYTHONPATH seed=$PYTHONHASHSEED cards=$CUDA_VISIBLE_DEVICES > {tmp_path}/said"
    )
    run(echo, tmp_path)
    assert (tmp_path / "said").read_text() == "path= seed=0 cards=\n"
    run_worker(
        echo, "fit", tmp_path, use_gpu=True, install="", activity="fitting", progress=lambda what, share: None
    )
    assert (tmp_path / "said").read_text() == "path= seed=0 cards=0,1\n"


def test_a_path_from_here(program, tmp_path, monkeypatch):
    program("exit 0")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    run("./python", tmp_path / "elsewhere")


def test_the_worker_needs_nothing_of_kilowait(tmp_path):
    """It is run by a Python that does not have it: isolated, it gets as far as the task it is not given."""
    worker = Path(sys.modules["kilowait.synth.external.worker"].__file__)
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    python.chmod(0o755)
    began = time.monotonic()
    with pytest.raises(InputError, match=r"No such file or directory: '.*task\.json'"):
        run(str(python), tmp_path)
    assert time.monotonic() - began < 30
    assert "import kilowait" not in worker.read_text() and "from kilowait" not in worker.read_text()
