"""Folders from other people: names elsewhere, links, devices and damaged fields are errors in words."""

from __future__ import annotations

import hashlib
import json
import os

import numpy as np
import pytest

import kilowait as kw
from kilowait.errors import InputError
from kilowait.evaluation.storage import load_comparison, load_run, open_folder, save_comparison, save_run
from kilowait.evaluation.storage.folder import checked_manifest


@pytest.fixture
def run(tmp_path):
    """A run folder."""
    log = kw.simulate(kw.lublin(30, 4, seed=1), kw.Cluster.from_nodes(4))
    return save_run(tmp_path / "run", log, scenario={"trace": "made"}, results={"metrics": kw.metrics(log)})


@pytest.fixture
def comparison(tmp_path):
    """A comparison folder of two traces."""
    compared = kw.compare(kw.lublin(60, 4, seed=1), kw.Cluster.from_nodes(4), ["fcfs", "saf"])
    return save_comparison(tmp_path / "comparison", [compared, compared], scenario={}, results={"traces": []})


def change_manifest(folder, **files):
    """Add files to the manifest with the checksum of what they contain."""
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["files"] |= files
    path.write_text(json.dumps(manifest))


def change_json(folder, name, change):
    """Change a JSON file and its checksum."""
    data = json.loads((folder / name).read_text())
    change(data)
    (folder / name).write_text(json.dumps(data))
    change_manifest(folder, **{name: hashlib.sha256((folder / name).read_bytes()).hexdigest()})


@pytest.mark.parametrize("name", ["/etc/passwd", "../run/log.parquet", "/dev/zero", ".", "", "a/b"])
def test_only_files_of_the_folder_are_read(run, name):
    change_manifest(run, **{name: "0" * 64})
    with pytest.raises(InputError, match=f"'{name}' is not the name of a file in {run}"):
        checked_manifest(run)


@pytest.mark.parametrize("kind", ["a link", "a pipe", "a folder"])
def test_links_pipes_and_folders_are_refused(run, tmp_path, kind):
    path = run / "log.parquet"
    if kind == "a link":
        path.rename(tmp_path / "outside")
        path.symlink_to(tmp_path / "outside")
    else:
        path.unlink()
        os.mkfifo(path) if kind == "a pipe" else path.mkdir()
    with pytest.raises(InputError, match=f"{path} is {kind}; a regular file is needed"):
        open_folder(run)


def test_files_that_are_not_in_the_manifest_are_not_read(run):
    before = load_run(run)
    (run / "states.parquet").write_bytes(b"not covered by a checksum")
    (run / "pieces.parquet").write_bytes(b"not covered by a checksum")
    after = load_run(run)
    assert after.log.states is None and after.log.pieces is None
    np.testing.assert_array_equal(after.log.start_s, before.log.start_s)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data["cases"][0].update(size="x"), r"cases\[0\].size is 'x'; it must be a whole number"),
        (lambda data: data["cases"][1].pop("machine"), r"cases\[1\].machine is missing"),
        (lambda data: data["cases"][0]["windows"].pop(), r"cases\[0\].windows is a list of 2; it must be a list of 3"),
        (lambda data: data["cases"][0].update(windows=[[0], [99], [0]]), "not windows of its 60 jobs"),
        (lambda data: data["cases"][0]["windows"][1].append(1), "different numbers of starts and sizes"),
        (lambda data: data["cases"][0]["runs"].pop(), "2 policies have the settings of 1 runs"),
        (
            lambda data: data["cases"][0]["policies"][0].update(kind="x"),
            r"policies\[0\].kind is 'x'; it must be one of",
        ),
        (lambda data: data["cases"][0]["machine"]["groups"].clear(), "groups is a list of 0; it must be a list of at"),
        (lambda data: data["cases"][0]["machine"]["capacity_s"].append(0.0), "are not steps in ascending order"),
        (lambda data: data["cases"].pop(), "segments.parquet|records.parquet|results.json"),
        (lambda data: data.clear(), "cases is missing"),
    ],
)
def test_damaged_cases_are_named(comparison, change, message):
    change_json(comparison, "cases.json", change)
    with pytest.raises(InputError, match=message):
        load_comparison(comparison)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[" * 10**5, "more than 64 nested"),
        ('{"a": ' + "9" * 10**5 + "}", "100,000 digits"),
        ('{"ledger": 5}', "ledger"),
    ],
)
def test_damaged_results_are_named(run, text, message):
    (run / "results.json").write_text(text)
    change_manifest(run, **{"results.json": hashlib.sha256(text.encode()).hexdigest()})
    with pytest.raises(InputError, match=f"{run / 'results.json'}.*{message}"):
        load_run(run)
