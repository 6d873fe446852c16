"""Docs, README and changelog: they build without warnings, links are valid, examples run."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

from kilowait.jobs.columns import COLUMNS

LINK = re.compile(r"(?<!\\)\]\(\s*<?([^)\s>]+)>?[^)]*\)|<img[^>]+src=\"([^\"]+)\"")
FENCE = re.compile(r"^(```+|~~~+).*?^\1", re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="session")
def readme(project: Path) -> str:
    """The text of README.md."""
    path = project / "README.md"
    if not path.exists():
        pytest.skip("there is no README.md yet")
    return path.read_text(encoding="utf-8")


def build(source: Path, out: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "sphinx",
            "-W",
            "--keep-going",
            "-q",
            "-b",
            "html",
            "-d",
            out / "trees",
            source,
            out / "html",
        ],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.slow
def test_docs_build_without_warnings(project, tmp_path):
    process = build(project / "docs", tmp_path)
    assert process.returncode == 0, process.stderr
    assert (tmp_path / "html" / "index.html").exists()
    assert "JobTable" in (tmp_path / "html" / "api.html").read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        "See [there](nowhere.md).",
        "See {doc}`nowhere`.",
        "# One\n\n### Three\n",
        "```{autofunction} kilowait.nothing\n```",
    ],
    ids=["a dead link", "a dead reference", "a skipped heading", "a missing name"],
)
def test_errors_in_docs_fail_the_build(project, tmp_path, text):
    source = tmp_path / "docs"
    source.mkdir()
    shutil.copy(project / "docs" / "conf.py", source)
    (source / "index.md").write_text(f"# Index\n\n{text}\n")
    process = build(source, tmp_path / "out")
    assert process.returncode != 0, process.stdout + process.stderr


def pages(project: Path) -> list[Path]:
    top_level = [project / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")]
    return [page for page in (*top_level, *sorted((project / "docs").rglob("*.md"))) if page.exists()]


def dead_links(page: Path) -> list[str]:
    """Relative links of a page to missing files."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    targets = [markdown_target or image_source for markdown_target, image_source in LINK.findall(text)]
    local = [t.partition("#")[0] for t in targets if "://" not in t and not t.startswith(("#", "mailto:"))]
    return [target for target in local if target and not (page.parent / target).exists()]


def test_relative_links_are_valid(project):
    dead_by_page = {page.name: links for page in pages(project) if (links := dead_links(page))}
    assert not dead_by_page


@pytest.mark.parametrize("page", ["policy", "trace-format", "generator", "reward-term"])
def test_extension_pages_name_at_most_three_files(project, page):
    text = (project / "docs" / "contributing" / f"{page}.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([\w/.]+)`(.*?) \|", text, re.MULTILINE)
    assert 1 <= len(rows) <= 3
    for path, remark in rows:
        assert "(new)" in remark or (project / path).exists(), path
        assert (project / path).parent.exists(), path


def test_dead_links_are_detected(tmp_path):
    page = tmp_path / "x.md"
    page.write_text(
        "[a](b.md) ![c](d.png) [me](x.md#top) [out](https://example.org) [here](#x)\n\n```\n[e](f.md)\n```\n"
        '<img src="g.svg" width="3">'
    )
    assert dead_links(page) == ["b.md", "d.png", "g.svg"]


def test_changelog_and_package_have_the_same_version(project):
    version = tomllib.loads((project / "pyproject.toml").read_text())["project"]["version"]
    top = re.search(r"^## \[?(\d[^\]\s]*)", (project / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert top is not None
    assert top.group(1) == version
    code = (project / "src" / "kilowait" / "__init__.py").read_text()
    assert f'__version__ = "{version}"' in code


def test_extra_all_contains_every_extra(project):
    extras = tomllib.loads((project / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert all(extras.values())
    everything = re.fullmatch(r"kilowait\[(.*)\]", extras["all"][0])
    assert set(everything.group(1).split(",")) == set(extras) - {"all", "dev"}


def test_declared_dependencies_are_pinned(project):
    """Every declared dependency is pinned in constraints.txt."""
    pins = {
        line.partition("==")[0].lower().replace("_", "-")
        for line in (project / "constraints.txt").read_text().splitlines()
        if "==" in line
    }
    declared = tomllib.loads((project / "pyproject.toml").read_text())["project"]
    requirements = [
        *declared["dependencies"],
        *(item for items in declared["optional-dependencies"].values() for item in items),
    ]
    names = {re.match(r"[\w.-]+", item).group().lower() for item in requirements} - {"kilowait"}
    assert names <= pins


def test_readme_commands_are_make_targets(project, readme):
    targets = set(re.findall(r"^([a-z][a-z-]*):", (project / "Makefile").read_text(), re.MULTILINE))
    mentioned = set(re.findall(r"^\s*(?:\$ )?make ([a-z-]+)", readme, re.MULTILINE)) | set(
        re.findall(r"`make ([a-z-]+)`", readme)
    )
    assert {"quickstart", "test"} <= mentioned
    assert mentioned <= targets


def test_ci_runs_the_test_command_of_the_readme(project):
    assert (project / ".ci" / "run").read_text().rstrip().endswith("\nmake test")
    assert (project / ".ci" / "run").stat().st_mode & 0o111, ".ci/run is executable"


@pytest.mark.slow
@pytest.mark.parametrize("page", ["README.md", "docs/quickstart.md", "docs/comparing.md"])
def test_examples_run(project, tmp_path, page):
    text = (project / page).read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert blocks, f"{page} shows Python"
    for block in blocks:
        if ">>>" in block:
            continue  # run by pytest as a doctest
        process = subprocess.run(
            [sys.executable, "-W", "error", "-c", block],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert process.returncode == 0, f"{block}\n{process.stderr}"


def test_api_page_lists_every_column(project):
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| (.*) \|$", (project / "docs" / "api.md").read_text(), re.MULTILINE)
    assert rows == [(name, np.dtype(rule.dtype).name, rule.meaning) for name, rule in COLUMNS.items()]
