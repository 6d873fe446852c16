"""`agent:PATH:untrained`: the network of an agent with random weights, as a control in comparisons."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import kilowait as kw
from kilowait.errors import InputError

pytest.importorskip("torch")

from kilowait.agents import LinearAgent, network, save_network
from kilowait.agents.network_policies import settings_to_dict
from kilowait.envs.batch_env import DecisionSettings
from kilowait.experiments.policies import make_policy_configs, resolve_policy

JOBS, CLUSTER = kw.lublin(200, 32, load=0.95, seed=3), kw.Cluster.from_nodes(32)


@pytest.fixture
def agent_path(tmp_path: Path) -> str:
    """A file of a network whose weights are those of seed 5."""
    decision_settings = DecisionSettings()
    trained = network(decision_settings.observation_spec, "kernel", seed=5, width=16)
    provenance = {"decision_settings": settings_to_dict(decision_settings)}
    return f"agent:{save_network(trained, tmp_path / 'agent.pt', provenance=provenance)}"


def starts(text: str) -> np.ndarray:
    return kw.simulate(JOBS, CLUSTER, resolve_policy(text)).jobs()["start_s"]


def test_untrained_network_has_the_weights_of_its_seed(agent_path: str) -> None:
    trained = starts(agent_path)
    assert (starts(f"{agent_path}:untrained=5") == trained).all()
    assert (starts(f"{agent_path}:untrained") != trained).any()
    assert (starts(f"{agent_path}:untrained") == starts(f"{agent_path}:untrained=0")).all()


def test_labels_say_which_agent_is_untrained(agent_path: str) -> None:
    policies = [agent_path, f"{agent_path}:untrained", f"{agent_path}:untrained=2"]
    labels = [config.label for config in make_policy_configs(policies, "easy", clairvoyant=False)]
    assert labels == ["agent", "agent untrained", "agent untrained (seed 2)"]


def test_errors_of_untrained_agents(agent_path: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="seed 'x'; write a whole number"):
        resolve_policy(f"{agent_path}:untrained=x")
    LinearAgent(np.zeros(12)).save(tmp_path / "linear.json")
    with pytest.raises(InputError, match="only networks have an untrained form.*leave :untrained out"):
        resolve_policy(f"agent:{tmp_path}/linear.json:untrained")
