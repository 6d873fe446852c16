"""Preference-conditioned networks: training, names on the command line, Pareto front."""

from dataclasses import replace

import numpy as np
import pytest

import kilowait as kw
from kilowait.errors import InputError, UnknownNameError
from kilowait.experiments.comparison.run_matrix import _policy_digest
from kilowait.experiments.policies import make_policy_configs, resolve_policy
from kilowait.experiments.training.evaluate import preference_front
from kilowait.experiments.training.network import train_network
from kilowait.experiments.training.rl_settings import RLTraining

MACHINE = kw.Cluster.from_nodes(32)
JOBS = kw.lublin(900, 32, load=1.0, seed=3)
QUICK = RLTraining(
    total_timesteps=16 * 4 * 6,
    num_envs=4,
    episode_jobs=20,
    queue_window=16,
    windows=3,
    window_jobs=60,
    objectives=("slowdown", "wait"),
    hyperparameters={"n_steps": 16, "n_minibatches": 2, "n_epochs": 1, "validate_every": 2, "checkpoint_every": 2},
)


def trained(folder, training=QUICK, **options):
    return train_network(JOBS[:600], JOBS[600:750], MACHINE, training, folder=folder, **options)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("preferences") / "run"
    return folder, *trained(folder)


def test_warm_start_with_preferences(tmp_path):
    training = replace(QUICK, expert="saf", expert_steps=16 * 4 * 2, total_timesteps=16 * 4)
    agent, _ = trained(tmp_path / "warm", training)
    assert agent.preferences == ("slowdown", "wait")
    assert (tmp_path / "warm" / "warm.json").exists()


class Killed(Exception):
    pass


@pytest.mark.parametrize("algo", ["ppo", "d3qn"])
def test_resumed_after_kill_equals_uninterrupted(tmp_path, algo):
    settings = dict(QUICK.hyperparameters) if algo == "ppo" else {
        "train_freq": 16, "gradient_steps": 2, "batch_size": 16, "learning_starts": 64, "buffer_size": 500,
        "validate_every": 2, "checkpoint_every": 2,
    }  # fmt: skip
    training = replace(QUICK, algo=algo, hyperparameters=settings)
    uninterrupted, history = trained(tmp_path / "uninterrupted", training)

    def kill(update):
        if update.number == 5:
            raise Killed

    with pytest.raises(Killed):
        trained(tmp_path / "resumed", training, progress=kill)
    resumed, again = trained(tmp_path / "resumed", training, resume=True)
    left, right = uninterrupted.network.state_dict(), resumed.network.state_dict()
    assert all(np.array_equal(left[name].numpy(), right[name].numpy()) for name in left)
    metrics = [[(update.metric, update.validation) for update in updates] for updates in (history, again)]
    assert np.array_equal(*metrics, equal_nan=True)
    with pytest.raises(InputError, match="objectives .*'wait'., not .*'sla'"):
        trained(tmp_path / "resumed", replace(training, objectives=("slowdown", "sla")), resume=True)


def test_saved_agent_has_terms_and_units_and_runs_with_preference(run):
    folder, agent, history = run
    again = kw.load_agent(folder)
    assert again.preferences == ("slowdown", "wait")
    units = again.provenance["units"]
    first = np.linspace(0, 540, 3).astype(int)
    saf = [kw.metrics(kw.simulate(JOBS[lo : lo + 60], MACHINE, "saf", "easy")) for lo in first]
    assert units["slowdown"] == pytest.approx(np.mean([metrics["mean_bsld"] for metrics in saf]) - 1)
    assert units["wait"] == pytest.approx(np.mean([metrics["mean_wait_s"] for metrics in saf]) / 3600)
    assert np.isfinite(history[-1].best)
    path = f"agent:{folder / 'agent.pt'}"
    later = JOBS[750:]
    named = resolve_policy(f"{path}:prefer=slowdown=0.3+wait=0.7")
    assert named.name == "agent slowdown=0.3+wait=0.7"
    assert np.array_equal(
        kw.simulate(later, MACHINE, named, "easy").jobs()["start_s"],
        kw.simulate(later, MACHINE, agent.prefer(slowdown=0.3, wait=0.7), "easy").jobs()["start_s"],
    )


def test_preference_in_policy_text(run, tmp_path):
    path = f"agent:{run[0] / 'agent.pt'}"
    configs = make_policy_configs(
        f"saf,{path}:prefer=slowdown=1,{path}:prefer=slowdown=1+wait=3", "easy", clairvoyant=False
    )
    assert [config.label for config in configs] == ["saf", "agent slowdown=1", "agent slowdown=1+wait=3"]
    with pytest.raises(InputError, match=r"none is set.*agent:PATH:prefer=slowdown=0.5\+wait=0.5"):
        make_policy_configs(path, "easy")
    with pytest.raises(UnknownNameError, match="unknown preference 'slowdwn'; did you mean 'slowdown'"):
        resolve_policy(f"{path}:prefer=slowdwn=1")
    with pytest.raises(InputError, match="'slowdown'; write terms with their weights"):
        resolve_policy(f"{path}:prefer=slowdown")
    kw.agents.LinearAgent(np.ones(len(kw.agents.FEATURES))).save(tmp_path / "agent.json")
    with pytest.raises(InputError, match="takes no preference"):
        resolve_policy(f"agent:{tmp_path / 'agent.json'}:prefer=slowdown=1")
    digests = [_policy_digest(config.policy) for config in configs]
    assert len(set(digests)) == 3 and str(run[0]) not in "".join(digests), "content of the file, and the preference"


def test_front_equals_simulations_of_each_preference(run):
    agent, later = run[1], JOBS[750:]
    front = preference_front(agent, later, MACHINE, window_jobs=50, grid_steps=2)
    assert (front["windows"], len(front["points"]), list(front["terms"])) == (3, 3, ["slowdown", "wait"])
    for point in front["points"]:
        policy = agent.prefer(**point["preference"])
        runs = [kw.metrics(kw.simulate(later[lo : lo + 50], MACHINE, policy, "easy")) for lo in (0, 50, 100)]
        assert point["metrics"]["slowdown"] == pytest.approx(np.mean([metrics["mean_bsld"] for metrics in runs]) - 1)
        assert point["metrics"]["wait"] == pytest.approx(np.mean([metrics["mean_wait_s"] for metrics in runs]) / 3600)
    with pytest.raises(InputError, match="takes no preference"):
        preference_front(agent.prefer(wait=1), later, MACHINE, window_jobs=50)
    with pytest.raises(InputError, match="150 jobs are fewer than a window of 1,024"):
        preference_front(agent, later, MACHINE)


def test_invalid_settings_are_errors(tmp_path):
    with pytest.raises(InputError, match="leave the reward out"):
        replace(QUICK, reward={"wait": 1.0})
    with pytest.raises(UnknownNameError, match="unknown reward term 'wiat'; did you mean 'wait'"):
        trained(tmp_path / "a", replace(QUICK, objectives=("slowdown", "wiat")))
    with pytest.raises(InputError, match="name at least two of"):
        trained(tmp_path / "b", replace(QUICK, objectives=("slowdown",)))
