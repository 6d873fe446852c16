"""The bounds of dependencies in pyproject.toml agree with the versions that are tested."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

LOWEST_EXTRAS = ("pandas", "polars", "report", "predict")


@pytest.fixture(scope="module")
def declared(project: Path) -> dict[str, dict[str, Requirement]]:
    """Requirements by extra ("" for the core) and name."""
    data = tomllib.loads((project / "pyproject.toml").read_text())["project"]
    groups = {"": data["dependencies"], **data["optional-dependencies"]}
    parsed = {extra: [Requirement(text) for text in texts] for extra, texts in groups.items()}
    return {extra: {canonicalize_name(each.name): each for each in group} for extra, group in parsed.items()}


def pins(path: Path) -> dict[str, Version]:
    lines = (line.partition("#")[0].strip() for line in path.read_text().splitlines())
    return {canonicalize_name(name): Version(version) for name, _, version in (x.partition("==") for x in lines if x)}


def test_lowest_constraints_are_the_lower_bounds(project, declared):
    expected = {}
    for extra in ("", *LOWEST_EXTRAS):
        for name, requirement in declared[extra].items():
            (bound,) = (spec.version for spec in requirement.specifier if spec.operator == ">=")
            expected[name] = Version(bound)
    found = pins(project / "constraints-lowest.txt")
    assert found == expected


def test_development_versions_are_within_the_bounds(project, declared):
    versions = pins(project / "constraints.txt")
    for group in declared.values():
        for name, requirement in group.items():
            if name != "kilowait":
                assert requirement.specifier.contains(versions[name], prereleases=True), requirement


def test_extras_of_the_lowest_versions_are_those_of_the_makefile(project):
    installed = re.search(
        r"--editable '\.\[([\w,]+)\]' --constraint constraints-lowest\.txt", (project / "Makefile").read_text()
    )
    assert installed is not None and tuple(installed[1].split(",")) == LOWEST_EXTRAS
