"""Who may import whom: the contracts hold, and they close on code that breaks them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest


def lint_imports(source: Path, config: Path) -> subprocess.CompletedProcess[str]:
    """import-linter on the package under `source`."""
    lint = Path(sys.executable).with_name("lint-imports")
    return subprocess.run(
        [lint, "--no-logo", "--no-cache", "--config", config],
        cwd=source,
        env={**os.environ, "PYTHONPATH": str(source), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def room(source: Path, name: str) -> Path:
    """The room's folder in a copy of the package, made where it is not there yet."""
    folder = source / "kilowait" / name
    folder.mkdir(exist_ok=True)
    (folder / "__init__.py").touch()
    return folder


@pytest.fixture
def source(project: Path, tmp_path: Path) -> Path:
    """A copy of src to spoil."""
    shutil.copytree(
        project / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info")
    )
    return tmp_path / "src"


def test_the_contracts_are_kept(project, source):
    done = lint_imports(source, project / "pyproject.toml")
    assert done.returncode == 0, done.stdout + done.stderr
    assert " 0 broken" in done.stdout


PLANTED = {
    "upwards": ("jobs/planted.py", "from kilowait.engine import anything", "kilowait.jobs.planted"),
    "upwards in a function": (
        "jobs/planted.py",
        "def f():\n    import kilowait.engine",
        "kilowait.jobs.planted",
    ),
    "sideways": ("cluster/planted.py", "from kilowait.jobs import JobTable", "kilowait.cluster.planted"),
    "out of the ground floor": ("units.py", "from kilowait.jobs import JobTable", "kilowait.units"),
    "a room nobody planned": ("utils/__init__.py", "", "utils"),
    "a file beside the rooms": ("misc.py", "", "misc"),
    "numba in jobs": ("jobs/planted.py", "import numba", "kilowait.jobs.planted -> numba"),
    "numba in traces": ("traces/planted.py", "from numba import njit", "kilowait.traces.planted -> numba"),
    "torch in jobs": ("jobs/planted.py", "import torch", "kilowait.jobs.planted -> torch"),
    "torch in the engine": ("engine/planted.py", "import torch.nn as nn", "kilowait.engine.planted -> torch"),
    "torch at the door": ("__init__.py", "import torch", "kilowait -> torch"),
    "rich outside cli": ("evaluation/planted.py", "import rich.table", "kilowait.evaluation.planted -> rich"),
    "typer outside cli": ("synth/planted.py", "import typer", "kilowait.synth.planted -> typer"),
    "pictures outside report": ("evaluation/planted.py", "import matplotlib", "planted -> matplotlib"),
    "meters outside telemetry": ("report/planted.py", "import pynvml", "planted -> pynvml"),
    "SDV beside the worker": ("synth/planted.py", "import sdv", "planted -> sdv"),
    "gymnasium in the engine": ("engine/planted.py", "import gymnasium", "planted -> gymnasium"),
}


@pytest.mark.parametrize("what", PLANTED)
def test_the_contracts_close(project, source, what):
    path, code, named = PLANTED[what]
    room(source, "engine")
    planted = source / "kilowait" / path
    if planted.parent != source / "kilowait":
        room(source, planted.parent.name)
    with planted.open("a") as file:
        file.write(f"\n{code}\n")
    done = lint_imports(source, project / "pyproject.toml")
    assert done.returncode != 0, f"{what} went through:\n{done.stdout}"
    assert named in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("engine/planted.py", "import numba"),
        ("policies/planted.py", "import numba"),
        ("agents/planted.py", "import torch, gymnasium"),
        ("synth/planted.py", "import torch"),
        ("cli/planted.py", "import typer, rich, kilowait"),
        ("report/planted.py", "import matplotlib"),
        ("telemetry/planted.py", "import pynvml"),
        ("evaluation/planted.py", "from kilowait.jobs import ExecutionLog"),
    ],
)
def test_the_contracts_stay_open_for_what_is_allowed(project, source, path, code):
    room(source, Path(path).parent.name)
    (source / "kilowait" / path).write_text(code)
    done = lint_imports(source, project / "pyproject.toml")
    assert done.returncode == 0, done.stdout + done.stderr
