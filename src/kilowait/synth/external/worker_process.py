"""Run the worker script in another Python, with progress reports and readable errors."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from shutil import which
from typing import IO

from kilowait.errors import InputError
from kilowait.synth.external.worker import MISSING
from kilowait.synth.generator import SampleProgress

__all__ = ["run_worker"]

WORKER = Path(__file__).with_name("worker.py")
PERCENTAGE = re.compile(rb"(\d+)%\|")
"""Percentage of a progress bar."""
MAX_OUTPUT_BYTES = 20_000
"""Maximum bytes kept of the worker's output."""


def interpreter(python: str) -> str:
    """Absolute path of a Python interpreter; empty: this one.

    >>> interpreter("") == sys.executable
    True
    >>> interpreter("/nowhere/python")
    Traceback (most recent call last):
    ...
    kilowait.errors.InputError: python=/nowhere/python is not a program; name the Python of the environment ...
    """
    path = which(os.path.expanduser(python)) if python else sys.executable
    if path is None:
        raise InputError(
            f"python={python} is not a program; name the Python of the environment the library is installed in, "
            "such as python=/home/me/sdv/bin/python"
        )
    return str(Path(path).absolute())  # do not follow links: a virtual environment is identified by its path


def run_worker(
    python: str,
    task: str,
    folder: Path,
    *,
    use_gpu: bool = False,
    install: str,
    activity: str,
    progress: SampleProgress,
) -> None:
    """Run a task in a folder.

    Args:
        python: path of the Python to run; empty: this one.
        task: fit or sample.
        folder: input and output files of the worker.
        use_gpu: whether it may use GPUs.
        install: installation hint for a missing library.
        activity: description of the task.
        progress: progress callback.
    """
    path = interpreter(python)
    # String hashes are random by default. Paths of this Python must not affect another one.
    environment = {**os.environ, "PYTHONHASHSEED": "0", "TOKENIZERS_PARALLELISM": "false"}
    if not use_gpu:
        environment["CUDA_VISIBLE_DEVICES"] = ""
    if path != sys.executable:
        environment = {name: value for name, value in environment.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    progress(activity, 0.0)
    try:
        worker = subprocess.Popen(
            [path, str(WORKER), task, str(folder)],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
    except OSError as problem:
        raise InputError(f"python={path} cannot be run ({problem.strerror}); name another one") from None
    with worker:
        try:
            assert worker.stdout is not None
            output = _read_output(worker.stdout, activity, progress)
        except BaseException:
            worker.kill()
            raise
    if worker.returncode:
        lines = output.decode(errors="replace").strip().splitlines() or ["no output"]
        if worker.returncode == MISSING:
            raise InputError(f"{path} has no library {lines[-1].strip()}. {install}")
        raise InputError(f"{activity}, the library failed in {path}: {lines[-1].strip()}") from RuntimeError(
            "\n".join(lines)
        )


def _read_output(stream: IO[bytes], activity: str, progress: SampleProgress) -> bytes:
    """The end of the worker's output; progress bars are forwarded to the callback."""
    output = b""
    while part := os.read(stream.fileno(), 65536):
        output = (output + part)[-MAX_OUTPUT_BYTES:]
        shares = PERCENTAGE.findall(output[-500:])
        if shares:
            progress(activity, min(1.0, int(shares[-1]) / 100))
    return output
