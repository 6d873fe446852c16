"""A fit that is killed and gone on with ends with the bytes it would have had; another fit is not gone on with."""

from __future__ import annotations

import json

import pytest

from kilowait.errors import InputError
from kilowait.experiments import fit_generator
from kilowait.experiments.fit_generator import fit_folder
from kilowait.experiments.resume import training_folder
from kilowait.synth import checkpoint
from kilowait.synth.tabular import ctgan, diffusion, tvae
from kilowait.synth.transformer import train
from tests.synth.test_generator import log

TINY = {"passes": 1, "width": 8, "layers": 1}
ROWS = {"steps": 9, "width": 8, "batch": 50}
NETWORKS = {
    "transformer": TINY,
    "ctgan": ROWS,
    "tvae": ROWS,
    "copulagan": ROWS,
    "diffusion": ROWS | {"draw_steps": 2},
}


class Killed(BaseException):
    """What a test is interrupted by; nobody catches it."""


def fit(out, *, kill=False, model="transformer", **more):
    """A fit that keeps its state every second step; killed after the second time if wanted."""
    told = []

    def heard(what, share):
        told.append(share)
        if kill and len(told) > 3:
            raise Killed

    state = training_folder(out)
    return fit_folder(
        log(), model, out, state=state, told=heard, settings={**NETWORKS[model], **more.pop("s", {})}, **more
    )


@pytest.fixture(autouse=True)
def often(monkeypatch):
    monkeypatch.setattr(checkpoint, "CHECKPOINT_EVERY", 2)
    for network in (train, ctgan, tvae, diffusion):
        monkeypatch.setattr(network, "REPORT_EVERY", 2)


@pytest.mark.parametrize("model", NETWORKS)
def test_gone_on_with_it_has_the_same_bytes(tmp_path, model):
    fit(tmp_path / "whole", model=model)
    with pytest.raises(Killed):
        fit(tmp_path / "parts", model=model, kill=True)
    assert not (tmp_path / "parts").exists()
    assert (tmp_path / "parts.training" / "last.safetensors").exists()
    fit(tmp_path / "parts", model=model, resume=True)
    for name in ("card.json", "state.npz"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "parts" / name).read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["parts", "whole"]


def test_another_fit_is_not_gone_on_with(tmp_path):
    with pytest.raises(Killed):
        fit(tmp_path / "one", kill=True)
    with pytest.raises(
        InputError,
        match="was begun with seed 0, and this is 4; resume with the same, or start again with --force",
    ):
        fit(tmp_path / "one", resume=True, seed=4)
    with pytest.raises(InputError, match="was begun with setting width 8, and this is 16"):
        fit(tmp_path / "one", resume=True, s={"width": 16})
    with pytest.raises(InputError, match="was begun with model transformer, and this is tvae"):
        fit(tmp_path / "one", resume=True, model="tvae")


def test_a_state_outlives_an_error(tmp_path, monkeypatch):
    kept = []
    write = fit_generator.Checkpoint.write

    def full(self, state):
        if kept:
            raise InputError("the disk is full")
        kept.append(write(self, state))

    monkeypatch.setattr(fit_generator.Checkpoint, "write", full)
    with pytest.raises(InputError, match="full"):
        fit(tmp_path / "one")
    assert (tmp_path / "one.training" / "last.safetensors").exists()
    monkeypatch.setattr(fit_generator.Checkpoint, "write", write)
    fit(tmp_path / "one", resume=True)
    assert (tmp_path / "one" / "card.json").is_file()


def test_what_cannot_be_fitted_leaves_nothing(tmp_path):
    with pytest.raises(InputError, match="width"):
        fit(tmp_path / "one", s={"width": 3})
    assert not list(tmp_path.iterdir())


def test_the_card(tmp_path):
    made = fit(tmp_path / "one")
    card = json.loads((tmp_path / "one" / "card.json").read_text())
    assert card["generator"] == "transformer" and card["settings"]["width"] == 8
    assert card["log"]["jobs"] == len(log()) and card["log"]["span_s"] > 0
    assert "submission times of each user" in card["personal_data"] and card["privacy"] is None
    assert set(card["ks_distances"]) >= {"nodes", "runtime_s", "estimate_s"}
    assert made.ks_distances == card["ks_distances"]


def test_a_private_folder_does_not_say_which_log_it_was(tmp_path):
    pytest.importorskip("opacus")
    settings = {"dp_epsilon": 8.0, "dp_steps": 2, "width": 8}
    said = {
        "command": ["kilowait"],
        "date": "2026-11-18",
        "inputs": {"log.swf": "digest"},
        "seeds": {"workload": 1},
    }
    fit_folder(log(), "transformer", tmp_path / "one", settings=settings, manifest=said)
    manifest = json.loads((tmp_path / "one" / "manifest.json").read_text())
    card = json.loads((tmp_path / "one" / "card.json").read_text())
    assert "inputs" not in manifest and manifest["date"] == "2026-11-18"
    assert card["ks_distances"] is None and card["personal_data"].startswith("nothing of any one user")
