"""Hyperparameter tuning: the same seed gives the same trials, also after a resume."""

import json
import math
import sys
from dataclasses import asdict, dataclass, replace

import pytest

import kilowait as kw
from kilowait.errors import InputError, MissingExtraError, UnknownNameError
from kilowait.experiments.training import tune as tune_module
from kilowait.experiments.training.network import train_network
from kilowait.experiments.training.rl_settings import (
    HyperparameterFile,
    RLTraining,
    hyperparameters_toml,
    read_hyperparameters,
)
from kilowait.experiments.training.tune import (
    SEARCH_SPACES,
    SearchRange,
    best_trial,
    default_hyperparameters,
    load_trials,
    prepare_search_folder,
    remove_search,
    tune,
)

MACHINE = kw.Cluster.from_nodes(16)
JOBS = kw.lublin(600, 16, load=1.0, seed=3)
PARTS = (JOBS[:360], JOBS[360:480])
QUICK = RLTraining(total_timesteps=256, num_envs=2, episode_jobs=40, queue_window=16, windows=2, window_jobs=60)


def tuned(folder, training=QUICK, **options):
    return tune(*PARTS, MACHINE, training, folder=folder, **options)


def without_durations(trials):
    """Trials without their durations."""
    return [{**asdict(trial), "seconds": 0} for trial in trials]


class Killed(BaseException):
    pass


def test_trials_are_trainings_and_best_is_written(tmp_path):
    trials = tuned(tmp_path, trials=3)
    assert [trial.outcome for trial in trials] == ["finished"] * 3
    assert trials[0].settings == default_hyperparameters("ppo")  # the first trial uses the algorithm's defaults
    best = best_trial(trials)
    assert best.metric == min(trial.metric for trial in trials)
    file = read_hyperparameters(tmp_path / "best.toml")
    assert file.hyperparameters["learning_rate"] == best.settings["learning_rate"]
    assert file.hyperparameters["sizes"] == {name: best.settings[name] for name in ("width", "depth")}
    results = json.loads((tmp_path / "results.json").read_text())
    assert results["best"] == best.number and [trial["metric"] for trial in results["trials"]] == [
        trial.metric for trial in trials
    ]
    assert not (tmp_path / "trial").exists()
    _, history = train_network(
        *PARTS, MACHINE, replace(QUICK, hyperparameters=file.hyperparameters), folder=tmp_path / "again"
    )
    assert history[-1].validation >= best.metric  # the same training, with fewer validations


# -- without trainings: the metric of a trial is a formula -------------------------------------------------


@dataclass
class FakeUpdate:
    number: int
    of: int
    validation: float
    best: float


@pytest.fixture
def fake_training(monkeypatch):
    """Replace training by a formula for the metric; returns the list of trainings."""
    trainings = []

    def train(jobs, validation, cluster, training, *, folder, progress):
        trainings.append(training)
        folder.mkdir()
        settings = training.algorithm_settings()
        metric = abs(math.log(settings.learning_rate / 1e-3)) + (settings.sizes.width != 128)
        history = []
        for number in range(1, 21):
            validation = metric + 1 / number if number % 2 == 0 else math.nan
            history.append(FakeUpdate(number, 20, validation, metric + 1 / (number - number % 2 or 1)))
            progress(history[-1])
        return None, history

    monkeypatch.setattr(tune_module, "train_network", train)
    return trainings


def test_resumed_after_kill_gives_same_trials(tmp_path, fake_training, monkeypatch):
    monkeypatch.setattr(tune_module, "RANDOM", 4)
    uninterrupted = tuned(tmp_path / "uninterrupted", trials=12)
    assert {trial.outcome for trial in uninterrupted} == {"finished", "pruned"}
    train, calls = tune_module.train_network, [0]

    def killed_at_times(*args, **options):
        calls[0] += 1
        if calls[0] in (1, 4, 10):
            (options["folder"]).mkdir()  # a killed process leaves this folder
            raise Killed
        return train(*args, **options)

    monkeypatch.setattr(tune_module, "train_network", killed_at_times)
    resume = False
    for _ in range(3):
        with pytest.raises(Killed):
            tuned(tmp_path / "resumed", trials=12, resume=resume)
        resume = True
    assert len(load_trials(tmp_path / "resumed")) == 7
    progress = []
    resumed = tuned(tmp_path / "resumed", trials=12, resume=True, progress=progress.append)
    assert without_durations(resumed) == without_durations(uninterrupted) and without_durations(
        load_trials(tmp_path / "resumed")
    ) == without_durations(uninterrupted)
    assert [trial.number for trial in progress] == list(range(8, 13))
    assert tuned(tmp_path / "resumed", trials=5, resume=True) == resumed  # there are already enough trials


def test_tuning_improves_metric(tmp_path, fake_training):
    trials = tuned(tmp_path, trials=20)
    best = best_trial(trials)
    assert best.settings["width"] == 128 and 6e-4 < best.settings["learning_rate"] < 1.7e-3
    later = [trial.settings["width"] for trial in trials[10:]]
    assert later.count(128) > 5  # a third of them by chance
    other = tuned(tmp_path / "other", replace(QUICK, seed=1), trials=3)
    assert (
        without_durations(other)[1] != without_durations(trials)[1]
        and without_durations(other)[0] == without_durations(trials)[0]
    )


def test_metric_is_reported_at_every_tenth(tmp_path, fake_training):
    tuned(tmp_path, replace(QUICK, total_timesteps=64 * 2 * 45), trials=1)
    assert fake_training[0].algorithm_settings().validate_every == 5  # 45 updates of 64 steps in 2 environments


def test_named_hyperparameters_are_fixed(tmp_path, fake_training):
    trials = tuned(tmp_path, replace(QUICK, hyperparameters={"n_steps": 32}), trials=2)
    assert "n_steps" not in trials[1].settings
    assert read_hyperparameters(tmp_path / "best.toml").hyperparameters["n_steps"] == 32


def test_diverged_training_is_a_trial(tmp_path, fake_training, monkeypatch):
    train = tune_module.train_network

    def diverging(*args, **options):
        if len(fake_training) == 1:
            fake_training.append(None)
            raise kw.agents.TrainingError("update 3: the loss is nan")
        return train(*args, **options)

    monkeypatch.setattr(tune_module, "train_network", diverging)
    trials = tuned(tmp_path, trials=3)
    assert [trial.outcome for trial in trials] == ["finished", "diverged", "finished"]
    assert math.isnan(trials[1].metric) and trials[1].settings != trials[2].settings
    assert json.loads((tmp_path / "results.json").read_text())["trials"][1]["metric"] is None


@pytest.mark.parametrize("algo", SEARCH_SPACES)
def test_defaults_are_in_search_space(algo):
    for name, value in default_hyperparameters(algo).items():
        space = SEARCH_SPACES[algo][name]
        assert space.low <= value <= space.high if isinstance(space, SearchRange) else value in space


@pytest.mark.parametrize("algo", SEARCH_SPACES)
def test_ends_of_search_space_are_valid(algo):
    for name, space in SEARCH_SPACES[algo].items():
        for value in (space.low, space.high) if isinstance(space, SearchRange) else space:
            settings = {"sizes": {name: value}} if name in ("width", "depth") else {name: value}
            RLTraining(algo=algo, hyperparameters=settings).algorithm_settings()


def test_errors(tmp_path, fake_training, monkeypatch):
    with pytest.raises(InputError, match="no search to resume"):
        tuned(tmp_path / "none", trials=1, resume=True)
    with pytest.raises(UnknownNameError, match="ppo"):
        default_hyperparameters("cma-es")
    tuned(tmp_path / "one", trials=1)
    with pytest.raises(InputError, match="--resume"):
        tuned(tmp_path / "one", trials=1)
    with pytest.raises(InputError, match="started with total_timesteps 256, not 512"):
        tuned(tmp_path / "one", replace(QUICK, total_timesteps=512), trials=2, resume=True)
    with pytest.raises(InputError, match="started with other jobs"):
        tune(JOBS[:300], PARTS[1], MACHINE, QUICK, trials=2, folder=tmp_path / "one", resume=True)
    (tmp_path / "one" / "mine.txt").touch()
    with pytest.raises(InputError, match="already contains a search"):
        prepare_search_folder(tmp_path / "one")
    assert prepare_search_folder(tmp_path / "one", force=True) == []
    assert [file.name for file in (tmp_path / "one").iterdir()] == ["mine.txt"]
    with pytest.raises(InputError, match="not empty"):
        prepare_search_folder(tmp_path / "one", force=False)
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "study.db").write_text("no database at all, but long enough to be looked at" * 50)
    with pytest.raises(InputError, match="cannot use .*study.db"):
        load_trials(tmp_path / "broken")
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(MissingExtraError, match=r"\[tune\]"):
        tuned(tmp_path / "new", trials=1)


def test_wrong_argument_leaves_no_search(tmp_path):
    with pytest.raises(InputError, match="shorter episodes"):
        tuned(tmp_path, replace(QUICK, episode_jobs=1000), trials=1)
    assert not (tmp_path / "study.db").exists()
    remove_search(tmp_path)


# -- hyperparameter files -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("algo = ", "is not TOML"),
        ('algo = "pppo"', "did you mean 'ppo'"),
        ('network = "kernl"', "did you mean 'kernel'"),
        ("hyperparameter = 1", "did you mean 'hyperparameters'"),
        ("hyperparameters = 3", r"write a table"),
        ("[hyperparameters]\nlearnin_rate = 0.1", "did you mean 'learning_rate'"),
        ("[hyperparameters]\nlearning_rate = 'fast'", "learning_rate is 'fast'; it must be a number"),
        ("[hyperparameters]\nlearning_rate = nan", "it must be a number"),
        ("[hyperparameters]\nlearning_rate = -1", "it must be above 0"),
        ("[hyperparameters]\nn_epochs = 2.5", "a whole number"),
        ("[hyperparameters]\nn_epochs = true", "a whole number"),
        ("[hyperparameters]\nanneal_lr = 1", "true or false"),
        ("[hyperparameters]\ntarget_kl = 'x'", "a number"),
        ("[hyperparameters]\ntotal_timesteps = 5", "--total-timesteps"),
        ("[hyperparameters]\nsizes = 5", r"\[hyperparameters.sizes\]"),
        ("[hyperparameters.sizes]\nwidht = 5", "did you mean 'width'"),
        ("[hyperparameters.sizes]\nwidth = 6", "is not divisible by 4 heads"),
        ("[hyperparameters.sizes]\nwidth = 'wide'", "a whole number"),
        ('algo = "d3qn"\n[hyperparameters]\nv_range = [1]', "a list of 2 numbers"),
    ],
)
def test_invalid_settings_are_errors(tmp_path, text, message):
    path = tmp_path / "bad.toml"
    path.write_text(text)
    with pytest.raises((InputError, UnknownNameError), match=message):
        read_hyperparameters(path)


def test_hyperparameter_file_round_trip(tmp_path):
    path = tmp_path / "own.toml"
    with pytest.raises(InputError, match="cannot read"):
        read_hyperparameters(path)
    file = HyperparameterFile("sac", "gat", {"tau": 0.02, "max_grad_norm": 1, "sizes": {"width": 32}})
    path.write_text(hyperparameters_toml(file))
    assert read_hyperparameters(path) == file == read_hyperparameters(path, algo="sac", network="gat")
    with pytest.raises(InputError, match="is for --algo sac, and --algo ppo is requested"):
        read_hyperparameters(path, algo="ppo")
    path.write_text("")
    assert read_hyperparameters(path, algo="a2c") == HyperparameterFile("a2c", "kernel", {})
    assert RLTraining(hyperparameters={"sizes": {"width": 32}}).algorithm_settings().sizes.width == 32
