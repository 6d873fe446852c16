"""Checks of names: no modules named by gerunds, unique class names, a complete API page."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import pytest

import kilowait

TERMS = {
    "accounting", "behavior_cloning", "boosting", "cooling", "early_stopping", "encoding",
    "load_matching", "load_shifting", "synthetic_training", "training",
}  # fmt: skip
"""Gerunds that are terms of the field."""


def gerunds(root: Path) -> list[str]:
    """Modules and packages below `root` that are named by a gerund."""
    modules = []
    for path in sorted(root.rglob("*.py")):
        name = path.parent.name if path.stem == "__init__" else path.stem
        if name.endswith("ing") and name not in TERMS:
            modules.append(str(path.relative_to(root)))
    return modules


def classes(root: Path) -> dict[str, list[str]]:
    """Public classes by name: the modules below `root` that define them."""
    modules_of_class = defaultdict(list)
    for path in sorted(root.rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                modules_of_class[node.name].append(str(path.relative_to(root)))
    return modules_of_class


def test_no_module_is_named_by_a_gerund(project: Path) -> None:
    assert gerunds(project / "src" / "kilowait") == []


def test_gerunds_are_detected(tmp_path: Path) -> None:
    (tmp_path / "levering.py").write_text("")
    (tmp_path / "encoding.py").write_text("")
    assert gerunds(tmp_path) == ["levering.py"]


def test_no_class_name_is_defined_twice(project: Path) -> None:
    duplicates = {name: where for name, where in classes(project / "src" / "kilowait").items() if len(where) > 1}
    assert duplicates == {}


def test_classes_defined_twice_are_detected(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text("class Drawn: pass\n")
    (tmp_path / "two.py").write_text("class Drawn: pass\n")
    assert len(classes(tmp_path)["Drawn"]) == 2


def listed(text: str) -> list[str]:
    """The names in the first column of the first table of the API page."""
    return re.findall(r"^\| `(\w+)` \|", text.partition("```{eval-rst}")[0], re.MULTILINE)


def documented(text: str) -> set[str]:
    """The objects that the API page documents with signature and docstring, by module and name."""
    found = set()
    for path in re.findall(r"^\.\. auto(?:function|class):: ([\w.]+)$", text, re.MULTILINE):
        module, _, name = path.rpartition(".")
        value = getattr(importlib.import_module(module), name) if module.startswith("kilowait") else None
        found.add(f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', name)}")
    return found


def without_example(names: Iterable[str]) -> list[str]:
    """Public names whose docstring has no example."""
    return [
        name for name in names if name != "__version__" and ">>>" not in (inspect.getdoc(getattr(kilowait, name)) or "")
    ]


def test_api_page_lists_exactly_the_public_names(project: Path) -> None:
    names = listed((project / "docs" / "api.md").read_text(encoding="utf-8"))
    assert sorted(names) == sorted(kilowait.__all__)


def test_api_page_documents_every_public_name(project: Path) -> None:
    text = (project / "docs" / "api.md").read_text(encoding="utf-8")
    text = text.replace(".. autoclass:: JobTable", ".. autoclass:: kilowait.jobs.JobTable")
    values = [getattr(kilowait, name) for name in kilowait.__all__ if name != "__version__"]
    assert {f"{value.__module__}.{value.__qualname__}" for value in values} - documented(text) == set()


def test_every_public_name_has_an_example() -> None:
    assert without_example(kilowait.__all__) == []


def test_unlisted_undocumented_and_examples_are_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    page = "| `compare` | Runs. |\n\n```{eval-rst}\n"
    page += ".. autofunction:: kilowait.experiments.comparison.compare.compare\n```\n| `x` | y |\n"
    assert listed(page) == ["compare"]
    assert documented(page) == {"kilowait.experiments.comparison.compare.compare"}
    monkeypatch.setattr(kilowait, "compare", lambda: None)
    assert without_example(["compare", "simulate"]) == ["compare"]


def test_submodules_resolve_in_a_fresh_process() -> None:
    import subprocess
    import sys

    code = "import kilowait as kw; print(kw.energy.__name__, kw.envs.__name__, kw.agents.__name__, kw.synth.__name__)"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert process.stdout.split() == ["kilowait.energy", "kilowait.envs", "kilowait.agents", "kilowait.synth"], (
        process.stderr
    )
