"""Linear power agents and their training."""

import numpy as np
import pytest

import kilowait as kw
from kilowait.agents.evolution.power import EvaluationWindows, PowerObjective, PowerSearchSettings, SlowdownLimit
from kilowait.agents.evolution.search import train_linear_agent
from kilowait.agents.linear_power import WEIGHT_MEANINGS, LinearPowerAgent, agent_from_controls
from kilowait.envs.power_setup import PowerConfig
from kilowait.errors import InputError, UnknownNameError
from kilowait.evaluation.comparison import single_window
from kilowait.experiments.power import make_power_context
from kilowait.experiments.settings import PowerSettings
from kilowait.experiments.training.power_evaluation import power_metrics

JOBS = kw.lublin(jobs=900, nodes=32, seed=3, load=0.5)
MACHINE = kw.Cluster.from_nodes(32)
POWER_CONTROLS = "sleep=timeout:600+dvfs=2"
POWER = PowerConfig("taurus", power_controls=POWER_CONTROLS)
QUICK = {"seed": 1, "generations": 3, "population": 6, "windows": 3, "window_jobs": 100}


def train(validation=JOBS[540:720], **settings):
    objective = PowerObjective(JOBS[:540], validation, MACHINE, POWER, PowerSearchSettings(**{**QUICK, **settings}))
    return train_linear_agent(objective)


@pytest.fixture(scope="module")
def trained():
    return train()


def test_save_and_load(tmp_path):
    agent = LinearPowerAgent(
        np.random.default_rng(0).normal(size=len(WEIGHT_MEANINGS)), POWER_CONTROLS, "carbon", "green", {"seed": 1}
    )
    again = kw.load_agent(agent.save(tmp_path / "agent.json"))
    assert np.array_equal(again.weights, agent.weights)
    assert (again.power_controls, again.signal, again.name, again.provenance) == (
        POWER_CONTROLS,
        "carbon",
        "green",
        {"seed": 1},
    )


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [('"version": 2', '"version": 7', "version 7"), ('"slowdown"', '"speedup"', "needs"), ("0.5", '"x"', "damaged")],
)
def test_damaged_file_is_an_error(tmp_path, old, new, message):
    path = agent_from_controls(8, slowdown=0.5).save(tmp_path / "agent.json")
    path.write_text(path.read_text().replace(old, new, 1))
    with pytest.raises(InputError, match=message):
        kw.load_agent(path)


def test_run_without_power_is_an_error():
    with pytest.raises(InputError, match="--power and --power-controls all"):
        kw.simulate(JOBS[:10], MACHINE, agent_from_controls(32), "easy")
    with pytest.raises(InputError, match="finite numbers"):
        LinearPowerAgent(np.zeros(3))


def test_training_does_not_depend_on_threads(trained):
    agent, history = trained
    again, _ = train(threads=2)
    assert np.array_equal(agent.weights, again.weights)
    assert len(history) == 3 and history[-1].best <= 1.0
    assert agent.provenance["objective"] == "energy" and agent.power_controls == POWER_CONTROLS


def test_training_objective_equals_accounting(trained):
    """The engine's energy of a window equals that of energy accounting on the simulated run."""
    agent = trained[0]
    settings = PowerSearchSettings(seed=0, windows=2, window_jobs=150)
    evaluation = EvaluationWindows(JOBS, MACHINE, POWER, settings).evaluate([agent], np.array([100, 400]))
    meter = make_power_context(PowerSettings("taurus"), JOBS, MACHINE)
    for place, first in enumerate((100, 400)):
        window = single_window(JOBS[first : first + 150])
        metrics = power_metrics(window, meter, {"agent": (agent, POWER_CONTROLS)})["agent"]
        assert evaluation.spent[0, place] == pytest.approx(metrics["energy"][0], rel=1e-9)
        assert evaluation.slowdown[0, place] == pytest.approx(metrics["slowdown"][0], rel=1e-9)


def test_missing_arguments_are_errors():
    with pytest.raises(UnknownNameError, match="objective"):
        train(objective="watts")
    with pytest.raises(InputError, match="carbon over time"):
        train(objective="co2")
    with pytest.raises(InputError, match="longer than"):
        train(JOBS[540:620])
    with pytest.raises(InputError, match="above 0"):
        SlowdownLimit(0.0)
