"""kilowait train --synthetic."""

import json

import pytest

from kilowait.experiments.fit_generator import fit_folder
from kilowait.experiments.inputs import workload_of

TRACE = "lublin:1200:32:0.95:7"
ES = ("--generations", "2", "--population", "4", "--windows", "2", "--window", "100")
PPO = ("--algo", "ppo", "--total-timesteps", "256", "--num-envs", "4", "--episode-jobs", "40", "--queue-window", "16",
       "--window", "100", "--windows", "2")  # fmt: skip


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A generator fitted to the first 60 % of the log."""
    folder = tmp_path_factory.mktemp("models") / "ours"
    fit_folder(workload_of(TRACE, rows="720").jobs, "bootstrap", folder)
    return folder


@pytest.mark.parametrize("how", [ES, PPO])
def test_an_agent_is_trained_on_generated_jobs_and_says_so(kilowait, model, tmp_path, how):
    out = tmp_path / "x"
    words = ("train", TRACE, *how, "--synthetic", model, "--synthetic-share", "0.25", "--out", out)
    said = kilowait(*words)
    assert said.status == 0 and "warning" not in said.err
    kept = json.loads((out / "manifest.json").read_text())["synthetic"]
    assert kept["share"] == 0.25 and kept["curriculum"] == "mixed"
    assert kept["generators"][0]["folder"] == str(model) and kept["generators"][0]["jobs"] == 720
    assert kept["generators"][0]["overlap"] == "training jobs only"


def test_a_generator_that_has_seen_what_is_judged_is_told_and_recorded(kilowait, tmp_path):
    assert kilowait("synth", "fit", TRACE, "-m", "bootstrap", "--out", tmp_path / "all").status == 0
    said = kilowait("train", TRACE, *ES, "--synthetic", tmp_path / "all", "--out", tmp_path / "x")
    assert (
        said.status == 0
        and "warning: " in said.err
        and "the agent is evaluated on its jobs from day" in said.err
    )
    kept = json.loads((tmp_path / "x" / "manifest.json").read_text())["synthetic"]["generators"][0]
    assert kept["overlap"] == "test jobs"
    others = ("train", "lublin:1200:32:0.95:8", *ES, "--synthetic", tmp_path / "all", "--load", "1.1")
    said = kilowait(*others, "--out", tmp_path / "y")
    assert said.status == 0 and "warning: " not in said.err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--synthetic", "nowhere"), "nowhere has no card.json"),
        (("--synthetic", "MODEL", "--synthetic-share", "2"), "the share of synthetic jobs is 2"),
        (("--synthetic", "MODEL", "--synthetic-curriculum", "first"), "unknown curriculum 'first'"),
        (("--synthetic", "MODEL", "--power", "taurus"), "leave it out"),
        (("--synthetic", "MODEL", "--power", "taurus", "--algo", "ppo"), "cannot be combined with --power"),
        (("--synthetic-share", "0.5"), "no generator is given"),
    ],
)
def test_what_is_wrong_is_told_before_anything_is_written(kilowait, model, tmp_path, words, told):
    words = tuple(str(model) if word == "MODEL" else word for word in words)
    said = kilowait("train", TRACE, *ES, *words, "--out", tmp_path / "x")
    assert said.status != 0 and told in said.err and not list(tmp_path.iterdir())
