"""Runs the worker by another Python, hears how far it is, and says in words what went wrong."""

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

__all__ = ["interpreter", "run_worker"]

WORKER = Path(__file__).with_name("worker.py")
SHARE = re.compile(rb"(\d+)%\|")
"""How far a progress bar is."""
KEPT = 20_000
"""Bytes kept of what the worker says."""


def interpreter(python: str) -> str:
    """Path of the Python that is meant; nothing is this one.

    >>> interpreter("") == sys.executable
    True
    >>> interpreter("/nowhere/python")
    Traceback (most recent call last):
    ...
    kilowait.errors.InputError: python=/nowhere/python is no program; name the Python of the environment ...
    """
    found = which(os.path.expanduser(python)) if python else sys.executable
    if found is None:
        raise InputError(
            f"python={python} is no program; name the Python of the environment the library is installed in, "
            "such as python=/home/me/sdv/bin/python"
        )
    return str(Path(found).absolute())  # no links followed: a virtual environment is known by its own path


def run_worker(
    python: str,
    task: str,
    folder: Path,
    *,
    cards: bool = False,
    install: str,
    what: str,
    told: SampleProgress,
) -> None:
    """Have a task done in a folder.

    Args:
        python: path of the Python to run; nothing is this one.
        task: fit or sample.
        folder: where the worker finds and leaves its files.
        cards: whether it may use graphics cards.
        install: what to tell a user who does not have the library.
        what: is being done, in words.
        told: hears how far it is.
    """
    path = interpreter(python)
    # Words are hashed by chance unless told otherwise. Paths set for this Python are not for another one.
    settings = {**os.environ, "PYTHONHASHSEED": "0", "TOKENIZERS_PARALLELISM": "false"}
    if not cards:
        settings["CUDA_VISIBLE_DEVICES"] = ""
    if path != sys.executable:
        settings = {
            name: value for name, value in settings.items() if name not in ("PYTHONPATH", "PYTHONHOME")
        }
    told(what, 0.0)
    try:
        worker = subprocess.Popen(
            [path, str(WORKER), task, str(folder)],
            cwd=folder,
            env=settings,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
    except OSError as problem:
        raise InputError(f"python={path} cannot be run ({problem.strerror}); name another one") from None
    with worker:
        try:
            assert worker.stdout is not None
            said = _heard(worker.stdout, what, told)
        except BaseException:
            worker.kill()
            raise
    if worker.returncode:
        lines = said.decode(errors="replace").strip().splitlines() or ["it said nothing"]
        if worker.returncode == MISSING:
            raise InputError(f"{path} has no library {lines[-1].strip()}. {install}")
        raise InputError(f"{what}, the library failed in {path}: {lines[-1].strip()}") from RuntimeError(
            "\n".join(lines)
        )


def _heard(stream: IO[bytes], what: str, told: SampleProgress) -> bytes:
    """The last of what a worker says; progress bars are passed on."""
    said = b""
    while part := os.read(stream.fileno(), 65536):
        said = (said + part)[-KEPT:]
        shares = SHARE.findall(said[-500:])
        if shares:
            told(what, min(1.0, int(shares[-1]) / 100))
    return said
