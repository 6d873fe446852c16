"""Import contracts of the packages: they hold, and import-linter detects violations."""

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


def subpackage(source: Path, name: str) -> Path:
    """The folder of a subpackage in a copy of the package; created if missing."""
    folder = source / "kilowait" / name
    folder.mkdir(exist_ok=True)
    (folder / "__init__.py").touch()
    return folder


@pytest.fixture
def source(project: Path, tmp_path: Path) -> Path:
    """A copy of src that tests may change."""
    shutil.copytree(project / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    return tmp_path / "src"


def test_contracts_hold(project, source):
    process = lint_imports(source, project / "pyproject.toml")
    assert process.returncode == 0, process.stdout + process.stderr
    assert " 0 broken" in process.stdout


VIOLATIONS = {
    "upwards": ("jobs/planted.py", "from kilowait.engine import anything", "kilowait.jobs.planted"),
    "upwards in a function": ("jobs/planted.py", "def f():\n    import kilowait.engine", "kilowait.jobs.planted"),
    "sideways": ("cluster/planted.py", "from kilowait.jobs import JobTable", "kilowait.cluster.planted"),
    "base module imports a package": ("units.py", "from kilowait.jobs import JobTable", "kilowait.units"),
    "an undeclared package": ("utils/__init__.py", "", "utils"),
    "an undeclared module": ("misc.py", "", "misc"),
    "numba in jobs": ("jobs/planted.py", "import numba", "kilowait.jobs.planted -> numba"),
    "numba in traces": ("traces/planted.py", "from numba import njit", "kilowait.traces.planted -> numba"),
    "torch in jobs": ("jobs/planted.py", "import torch", "kilowait.jobs.planted -> torch"),
    "torch in the engine": ("engine/planted.py", "import torch.nn as nn", "kilowait.engine.planted -> torch"),
    "torch in the top-level package": ("__init__.py", "import torch", "kilowait -> torch"),
    "rich outside cli": ("evaluation/planted.py", "import rich.table", "kilowait.evaluation.planted -> rich"),
    "typer outside cli": ("synth/planted.py", "import typer", "kilowait.synth.planted -> typer"),
    "matplotlib outside report": ("evaluation/planted.py", "import matplotlib", "planted -> matplotlib"),
    "jinja2 outside report": ("cli/planted.py", "from jinja2 import Template", "planted -> jinja2"),
    "pynvml outside telemetry": ("report/planted.py", "import pynvml", "planted -> pynvml"),
    "SDV outside the worker": ("synth/planted.py", "import sdv", "planted -> sdv"),
    "gymnasium in the engine": ("engine/planted.py", "import gymnasium", "planted -> gymnasium"),
}


@pytest.mark.parametrize("case", VIOLATIONS)
def test_violations_are_detected(project, source, case):
    path, code, reported = VIOLATIONS[case]
    subpackage(source, "engine")
    module_path = source / "kilowait" / path
    if module_path.parent != source / "kilowait":
        subpackage(source, module_path.parent.name)
    with module_path.open("a") as file:
        file.write(f"\n{code}\n")
    process = lint_imports(source, project / "pyproject.toml")
    assert process.returncode != 0, f"{case} was not detected:\n{process.stdout}"
    assert reported in process.stdout, process.stdout + process.stderr


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("engine/planted.py", "import numba"),
        ("policies/planted.py", "import numba"),
        ("agents/planted.py", "import torch, gymnasium"),
        ("synth/planted.py", "import torch"),
        ("cli/planted.py", "import typer, rich, kilowait"),
        ("report/planted.py", "import matplotlib"),
        ("report/markup.py", "import jinja2"),
        ("telemetry/planted.py", "import pynvml"),
        ("evaluation/planted.py", "from kilowait.jobs import ExecutionLog"),
    ],
)
def test_allowed_imports_pass(project, source, path, code):
    subpackage(source, Path(path).parent.name)
    (source / "kilowait" / path).write_text(code)
    process = lint_imports(source, project / "pyproject.toml")
    assert process.returncode == 0, process.stdout + process.stderr
