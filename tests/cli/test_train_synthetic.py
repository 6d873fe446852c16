"""kilowait train --synthetic."""

import json

import pytest

from kilowait.experiments.generators import fit_folder
from kilowait.experiments.scenario_inputs import read_workload
from kilowait.experiments.workload_settings import GeneratorSettings

TRACE = "lublin:1200:32:0.95:7"
ES = ("--generations", "2", "--population", "4", "--windows", "2", "--window", "100")
PPO = ("--algo", "ppo", "--total-timesteps", "256", "--num-envs", "4", "--episode-jobs", "40", "--queue-window", "16",
       "--window", "100", "--windows", "2")  # fmt: skip


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A generator fitted to the first 60 % of the log."""
    folder = tmp_path_factory.mktemp("models") / "ours"
    fit_folder(read_workload(TRACE, rows="720").jobs, GeneratorSettings("bootstrap", device="cpu"), folder)
    return folder


@pytest.mark.parametrize("algorithm", [ES, PPO])
def test_manifest_records_the_synthetic_training_jobs(kilowait, model, tmp_path, algorithm):
    out = tmp_path / "x"
    args = ("train", TRACE, *algorithm, "--synthetic", model, "--synthetic-share", "0.25", "--out", out)
    result = kilowait(*args)
    assert result.status == 0 and "warning" not in result.err
    record = json.loads((out / "manifest.json").read_text())["synthetic"]
    assert record["share"] == 0.25 and record["curriculum"] == "mixed"
    assert record["generators"][0]["folder"] == str(model) and record["generators"][0]["jobs"] == 720
    assert record["generators"][0]["overlap"] == "training jobs only"


def test_generator_fitted_on_test_jobs_is_reported(kilowait, tmp_path):
    assert kilowait("synth", "fit", TRACE, "-m", "bootstrap", "--out", tmp_path / "all").status == 0
    result = kilowait("train", TRACE, *ES, "--synthetic", tmp_path / "all", "--out", tmp_path / "x")
    assert (
        result.status == 0 and "warning: " in result.err and "the agent is evaluated on its jobs from day" in result.err
    )
    record = json.loads((tmp_path / "x" / "manifest.json").read_text())["synthetic"]["generators"][0]
    assert record["overlap"] == "test jobs"
    other_log = ("train", "lublin:1200:32:0.95:8", *ES, "--synthetic", tmp_path / "all", "--load", "1.1")
    result = kilowait(*other_log, "--out", tmp_path / "y")
    assert result.status == 0 and "warning: " not in result.err


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--synthetic", "nowhere"), "nowhere has no card.json"),
        (("--synthetic", "MODEL", "--synthetic-share", "2"), "the share of synthetic jobs is 2"),
        (("--synthetic", "MODEL", "--synthetic-curriculum", "first"), "unknown curriculum 'first'"),
        (("--synthetic", "MODEL", "--power", "taurus"), "leave it out"),
        (("--synthetic", "MODEL", "--power", "taurus", "--algo", "ppo"), "cannot be combined with --power"),
        (("--synthetic-share", "0.5"), "no generator is given"),
    ],
)
def test_errors_write_nothing(kilowait, model, tmp_path, args, message):
    args = tuple(str(model) if word == "MODEL" else word for word in args)
    result = kilowait("train", TRACE, *ES, *args, "--out", tmp_path / "x")
    assert result.status != 0 and message in result.err and not list(tmp_path.iterdir())
