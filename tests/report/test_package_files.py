"""The files that pages are made of: in the wheel, and data without markup and figures."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from importlib.resources import files

import pytest


def test_the_wheel_has_the_templates_and_assets(project):
    """The build includes everything below the package, and git ignores nothing of it."""
    build = tomllib.loads((project / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]["build"]
    assert build["targets"]["wheel"] == {"packages": ["src/kilowait"]}
    folder = files("kilowait.report")
    names = {kind: {file.name for file in folder.joinpath(kind).iterdir()} for kind in ("templates", "assets")}
    assert {"page.html", "parts.html", "comparison.html"} <= names["templates"]
    assert {"page.css", "page.js", "gantt.js"} <= names["assets"]
    paths = [f"src/kilowait/report/{kind}/{name}" for kind, of_kind in names.items() for name in of_kind]
    ignored = subprocess.run(["git", "check-ignore", *paths], cwd=project, capture_output=True, text=True, check=False)
    assert ignored.stdout == ""


def test_data_needs_neither_matplotlib_nor_templates():
    modules = "comparison, control_savings, energy, gpu, predictions, summary, synthetic, training"
    code = (
        f"import sys; from kilowait.report import gantt_chart; from kilowait.report.data import {modules}; "
        "sys.exit(any(name in sys.modules for name in ('matplotlib', 'jinja2')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    "path", sorted(files("kilowait.report").joinpath("data").glob("*.py")), ids=lambda path: path.stem
)
def test_data_modules_import_no_figures_and_no_page(path):
    imported = {
        node.module
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom)
    }
    assert not any(name.startswith(("kilowait.report.figures", "kilowait.report.page")) for name in imported if name)
