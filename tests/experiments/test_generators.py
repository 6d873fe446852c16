"""A fit resumed after a crash gives the same bytes as an uninterrupted one; a fit with other settings is an error."""

from __future__ import annotations

import json

import pytest

from kilowait.checkpoint import Checkpoint
from kilowait.errors import InputError
from kilowait.experiments.generators import fit_folder
from kilowait.experiments.training.resume_checks import training_folder
from kilowait.experiments.workload_settings import GeneratorSettings
from kilowait.synth import trainer
from tests.synth.test_generator import log

TINY = {"passes": 1, "width": 8, "layers": 1}
ROWS = {"steps": 9, "width": 8, "batch": 50}
NETWORKS = {"transformer": TINY, "ctgan": ROWS, "tvae": ROWS, "copulagan": ROWS, "diffusion": ROWS | {"draw_steps": 2}}


class Killed(BaseException):
    """Interrupts a fit; not caught as an `Exception`."""


def settings_of(model, hyperparameters, seed=0):
    text = ",".join(f"{name}={value}" for name, value in hyperparameters.items())
    return GeneratorSettings(model, seed=seed, settings=text, device="cpu")


def fit(out, *, kill=False, model="transformer", settings=(), seed=0, **more):
    """A fit with a checkpoint every second step; with `kill` it is interrupted after two checkpoints."""
    shares = []

    def progress(what, share):
        shares.append(share)
        if kill and len(shares) > 3:
            raise Killed

    state = training_folder(out)
    return fit_folder(
        log(),
        settings_of(model, {**NETWORKS[model], **dict(settings)}, seed),
        out,
        state=state,
        progress=progress,
        **more,
    )


@pytest.fixture(autouse=True)
def frequent_checkpoints(monkeypatch):
    monkeypatch.setattr(trainer, "CHECKPOINT_EVERY", 2)
    monkeypatch.setattr(trainer, "REPORT_EVERY", 2)


@pytest.mark.parametrize("model", NETWORKS)
def test_resumed_fit_gives_same_bytes(tmp_path, model):
    fit(tmp_path / "uninterrupted", model=model)
    with pytest.raises(Killed):
        fit(tmp_path / "resumed", model=model, kill=True)
    assert not (tmp_path / "resumed").exists()
    assert (tmp_path / "resumed.training" / "last.safetensors").exists()
    fit(tmp_path / "resumed", model=model, resume=True)
    for name in ("card.json", "state.npz"):
        assert (tmp_path / "uninterrupted" / name).read_bytes() == (tmp_path / "resumed" / name).read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["resumed", "uninterrupted"]


def test_resume_with_other_identity_is_an_error(tmp_path):
    with pytest.raises(Killed):
        fit(tmp_path / "one", kill=True)
    with pytest.raises(
        InputError, match="was started with seed 0, not 4; resume with the same value, or start again with --force"
    ):
        fit(tmp_path / "one", resume=True, seed=4)
    with pytest.raises(InputError, match="was started with setting width 8, not 16"):
        fit(tmp_path / "one", resume=True, settings={"width": 16})
    with pytest.raises(InputError, match="was started with model transformer, not tvae"):
        fit(tmp_path / "one", resume=True, model="tvae")


def test_checkpoint_remains_after_an_error(tmp_path, monkeypatch):
    written = []
    write = Checkpoint.write

    def write_once(self, state):
        if written:
            raise InputError("the disk is full")
        written.append(write(self, state))

    monkeypatch.setattr(Checkpoint, "write", write_once)
    with pytest.raises(InputError, match="full"):
        fit(tmp_path / "one")
    assert (tmp_path / "one.training" / "last.safetensors").exists()
    monkeypatch.setattr(Checkpoint, "write", write)
    fit(tmp_path / "one", resume=True)
    assert (tmp_path / "one" / "card.json").is_file()


def test_failed_fit_leaves_no_files(tmp_path):
    with pytest.raises(InputError, match="width"):
        fit(tmp_path / "one", settings={"width": 3})
    assert not list(tmp_path.iterdir())


def test_card_of_generator(tmp_path):
    generator = fit(tmp_path / "one")
    card = json.loads((tmp_path / "one" / "card.json").read_text())
    assert card["generator"] == "transformer" and card["settings"]["width"] == 8
    assert card["log"]["jobs"] == len(log()) and card["log"]["span_s"] > 0
    assert "submission times of each user" in card["personal_data"] and card["privacy"] is None
    assert set(card["ks_distances"]) >= {"nodes", "runtime_s", "estimate_s"}
    assert generator.ks_distances == card["ks_distances"]


def test_private_generator_has_no_digest_of_its_log(tmp_path):
    pytest.importorskip("opacus")
    settings = {"dp_epsilon": 8.0, "dp_steps": 2, "width": 8}
    origin = {"command": ["kilowait"], "date": "2026-11-18", "inputs": {"log.swf": "digest"}, "seeds": {"workload": 1}}
    fit_folder(log(), settings_of("transformer", settings), tmp_path / "one", manifest=origin)
    manifest = json.loads((tmp_path / "one" / "manifest.json").read_text())
    card = json.loads((tmp_path / "one" / "card.json").read_text())
    assert "inputs" not in manifest and manifest["date"] == "2026-11-18"
    assert card["ks_distances"] is None and card["personal_data"].startswith("nothing of any one user")
