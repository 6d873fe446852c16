"""Checks of size: long functions, many branches, long parameter lists and long files need a reason, or fail."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

LINES, BRANCHES, PARAMETERS, FILE_LINES = 80, 20, 9, 600
LONGER: set[str] = set()
"""Functions that may have more than `LINES` lines."""
MORE_PARAMETERS = {
    # The public interface: keyword arguments that a caller gives one by one.
    "experiments/comparison/compare.py:compare", "experiments/training/evaluate.py:evaluate",
    "experiments/training/train.py:train", "policies/simulation.py:simulate",
}  # fmt: skip
"""Public functions that have more than `PARAMETERS` parameters."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions(root: Path) -> Iterator[tuple[str, Function]]:
    """Functions and methods below `root`, with `path:name`."""
    for path in sorted(root.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, Function):
                yield f"{path.relative_to(root)}:{node.name}", node


def long_functions(root: Path) -> set[str]:
    return {name for name, node in functions(root) if (node.end_lineno or 0) - node.lineno + 1 > LINES}


def branching_functions(root: Path) -> set[str]:
    """Functions with too many statements that branch."""
    kinds = (ast.If, ast.For, ast.While, ast.ExceptHandler, ast.match_case)
    return {name for name, node in functions(root) if sum(isinstance(n, kinds) for n in ast.walk(node)) > BRANCHES}


def functions_of_many_parameters(root: Path) -> set[str]:
    """Public functions with too many parameters besides self."""
    found = set()
    for name, node in functions(root):
        parameters = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        count = sum(parameter.arg not in ("self", "cls") for parameter in parameters)
        if count > PARAMETERS and not node.name.startswith("_"):
            found.add(name)
    return found


def long_files(root: Path) -> set[str]:
    return {
        str(p.relative_to(root)) for p in root.rglob("*.py") if p.read_text(encoding="utf-8").count("\n") > FILE_LINES
    }


def test_no_function_is_too_long(project: Path) -> None:
    assert long_functions(project / "src" / "kilowait") == LONGER


def test_no_function_branches_too_often(project: Path) -> None:
    assert branching_functions(project / "src" / "kilowait") == set()


def test_no_public_function_has_too_many_parameters(project: Path) -> None:
    assert functions_of_many_parameters(project / "src" / "kilowait") == MORE_PARAMETERS


def test_no_file_is_too_long(project: Path) -> None:
    assert long_files(project / "src" / "kilowait") == set()


def test_excesses_are_detected(tmp_path: Path) -> None:
    parameters = ", ".join(f"p{number}" for number in range(PARAMETERS + 1))
    (tmp_path / "long.py").write_text("def f():\n" + "    pass\n" * LINES)
    (tmp_path / "branches.py").write_text("def f(x):\n" + "    if x: pass\n" * (BRANCHES + 1))
    (tmp_path / "parameters.py").write_text(
        f"class C:\n    def f(self, {parameters}): ...\n    def _g({parameters}): ...\n"
    )
    (tmp_path / "lines.py").write_text("\n" * (FILE_LINES + 1))
    assert long_functions(tmp_path) == {"long.py:f"}
    assert branching_functions(tmp_path) == {"branches.py:f"}
    assert functions_of_many_parameters(tmp_path) == {"parameters.py:f"}
    assert long_files(tmp_path) == {"lines.py"}
