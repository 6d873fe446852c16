"""The worker process: progress, errors, interruption and environment."""

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
    """Writes a shell script to be used as the Python of the worker."""

    def write(lines: str) -> str:
        path = tmp_path / "python"
        path.write_text(f"#!/bin/sh\n{lines}\n")
        path.chmod(0o755)
        return str(path)

    return write


def run(python: str, folder: Path, progress=lambda what, share: None) -> None:
    run_worker(python, "fit", folder, install="Install it.", activity="fitting", progress=progress)


def test_progress_bars_are_forwarded(program, tmp_path):
    reports = []
    run(
        program(r"printf 'Epoch 3:  25%%|##   | 1/4\r' >&2; sleep 0.2; echo '100%|####| 4/4'"),
        tmp_path,
        lambda what, share: reports.append((what, share)),
    )
    assert reports[0] == ("fitting", 0.0) and reports[-1] == ("fitting", 1.0)
    assert ("fitting", 0.25) in reports


def test_error_is_the_last_line_of_output(program, tmp_path):
    with pytest.raises(InputError, match="fitting, the library failed in .*/python: ValueError: too few") as error:
        run(program("echo Traceback >&2; echo 'ValueError: too few' >&2; exit 1"), tmp_path)
    assert "Traceback" in str(error.value.__cause__)


def test_failure_without_output(program, tmp_path):
    with pytest.raises(InputError, match="no output"):
        run(program("exit 9"), tmp_path)


def test_missing_python(tmp_path):
    with pytest.raises(InputError, match="python=/nowhere/python is not a program; name the Python of"):
        run("/nowhere/python", tmp_path)


def test_python_that_is_not_executable(tmp_path):
    (tmp_path / "python").write_bytes(b"\x7fELF, not really")
    (tmp_path / "python").chmod(0o755)
    with pytest.raises(InputError, match="cannot be run"):
        run(str(tmp_path / "python"), tmp_path)


def test_interruption_ends_the_worker(program, tmp_path):
    def interrupted(what, share):
        if share > 0:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(program(f"echo $$ > {tmp_path}/pid; echo '10%|#'; exec sleep 60"), tmp_path, interrupted)
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_environment_of_the_worker(program, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "/somewhere")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    echo = program(f"echo path=$PYTHONPATH seed=$PYTHONHASHSEED gpus=$CUDA_VISIBLE_DEVICES > {tmp_path}/environment")
    run(echo, tmp_path)
    assert (tmp_path / "environment").read_text() == "path= seed=0 gpus=\n"
    run_worker(echo, "fit", tmp_path, use_gpu=True, install="", activity="fitting", progress=lambda what, share: None)
    assert (tmp_path / "environment").read_text() == "path= seed=0 gpus=0,1\n"


def test_relative_path_of_python(program, tmp_path, monkeypatch):
    program("exit 0")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    run("./python", tmp_path / "elsewhere")


def test_worker_does_not_import_kilowait(tmp_path):
    """Run isolated from installed packages, the worker fails only because of the missing task file."""
    worker = Path(sys.modules["kilowait.synth.external.worker"].__file__)
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    python.chmod(0o755)
    start_s = time.monotonic()
    with pytest.raises(InputError, match=r"No such file or directory: '.*task\.json'"):
        run(str(python), tmp_path)
    assert time.monotonic() - start_s < 30
    assert "import kilowait" not in worker.read_text() and "from kilowait" not in worker.read_text()
