"""Checks of style, types, warnings, markers and doctests: each must detect an error."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


def run(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a tool of this environment."""
    tool = Path(sys.executable).with_name(str(command[0]))
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    return subprocess.run(
        [tool, *command[1:]], cwd=cwd, env=environment, capture_output=True, text=True, timeout=300, check=False
    )


@pytest.fixture
def tree(project: Path, tmp_path: Path) -> Path:
    """An empty project with the same settings."""
    (tmp_path / "pyproject.toml").write_bytes((project / "pyproject.toml").read_bytes())
    (tmp_path / "src" / "kilowait" / "jobs").mkdir(parents=True)
    (tmp_path / "tests").mkdir()
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "__init__.py").write_text("")
    return tmp_path


@pytest.mark.parametrize(
    ("path", "code", "rule"),
    [
        ("src/kilowait/jobs/x.py", '"""X."""\n\nimport os\n', "F401"),
        ("src/kilowait/jobs/x.py", '"""X."""\n\nprint("only cli prints")\n', "T201"),
        ("src/kilowait/jobs/x.py", "x = 1\n", "D100"),
        ("src/kilowait/jobs/x.py", '"""X."""\n\nimport numpy as np\n\nx = np.random.rand()\n', "NPY002"),
        ("tests/test_x.py", "def test():\n    for i in []:\n        lambda: i\n", "B023"),
    ],
)
def test_ruff_detects_errors(tree, path, code, rule):
    (tree / path).write_text(code)
    process = run("ruff", "check", "--no-cache", cwd=tree)
    assert process.returncode == 1, process.stdout + process.stderr
    assert rule in process.stdout


def test_ruff_format_detects_errors(tree):
    (tree / "tests" / "test_x.py").write_text("x = {  'a':1 }\n")
    assert run("ruff", "format", "--check", "--no-cache", cwd=tree).returncode == 1


@pytest.mark.slow
@pytest.mark.parametrize("code", ["def f(x):\n    return x\n", 'x: int = "one"\n', "def f() -> list: ...\n"])
def test_mypy_detects_errors(tree, code):
    (tree / "src" / "kilowait" / "x.py").write_text(code)
    process = run("mypy", "--strict", "--cache-dir", tree / "cache", cwd=tree)
    assert process.returncode == 1, process.stdout + process.stderr
    assert "x.py" in process.stdout


def run_pytest(tree, name, text):
    (tree / name).parent.mkdir(exist_ok=True)
    (tree / name).write_text(text)
    return run("pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", name, cwd=tree)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("tests/test_x.py", "import warnings\ndef test(): warnings.warn('careful')", "UserWarning: careful"),
        ("tests/test_x.py", "import numpy as np\ndef test(): np.zeros(1) / 0", "RuntimeWarning: invalid value"),
        ("tests/test_x.py", "import pytest\n@pytest.mark.slwo\ndef test(): pass", "slwo"),
        ("src/x.py", '"""\n>>> 1 + 1\n3\n"""', "Expected"),
        ("docs/x.md", "# X\n\n```python\n>>> 1 + 1\n3\n```\n", "Expected"),
    ],
    ids=["a warning", "numpy's warning", "an unknown marker", "a docstring's example", "a page's example"],
)
def test_pytest_detects_errors(tree, name, text, message):
    process = run_pytest(tree, name, text)
    assert process.returncode != 0, process.stdout + process.stderr
    assert message in process.stdout + process.stderr


def test_pytest_passes_correct_examples(tree):
    assert run_pytest(tree, "docs/x.md", "# X\n\n```python\n>>> 1 + 1\n2\n\n```\n").returncode == 0
