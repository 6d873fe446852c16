"""Networks as policies: inference inside the engine and from Python."""

import numpy as np
import pytest

import kilowait as kw
from kilowait.agents.network_policies import NetworkAgent, engine_weights, network_agent, settings_to_dict
from kilowait.agents.networks import network, q_network
from kilowait.agents.networks.factory import save_network
from kilowait.agents.networks.heads import greedy_actions
from kilowait.agents.validation import weighted_metrics
from kilowait.engine.policy import RunInputs
from kilowait.engine.settings import Settings
from kilowait.envs.batch_env import BatchVectorEnv, DecisionSettings, run_policy
from kilowait.errors import InputError
from tests.envs.workloads import crowded

MACHINE = kw.Cluster.from_nodes(16)


@pytest.mark.parametrize("make", [network, q_network])
@pytest.mark.parametrize("order", ["agent", "saf"])
@pytest.mark.parametrize("seed", range(3))
def test_engine_and_python_inference_agree(make, order, seed):
    decision_settings = DecisionSettings(queue_window=24, backfill_order=order)
    network_ = make(decision_settings.observation_spec, "kernel", seed=seed, width=16, depth=2)
    jobs = crowded(120, seed)
    inside = NetworkAgent(network_, decision_settings).run(RunInputs(jobs, MACHINE, Settings("easy")))
    outside = run_policy(
        jobs, MACHINE, lambda observation: greedy_actions(network_, observation), decision_settings=decision_settings
    )
    assert np.array_equal(inside.jobs()["start_s"], outside.jobs()["start_s"])
    assert inside.jobs()["start_s"].tolist() != kw.simulate(jobs, MACHINE, "fcfs", "easy").jobs()["start_s"].tolist()


def test_simulate_accepts_network_agent():
    decision_settings = DecisionSettings(queue_window=16)
    agent = NetworkAgent(
        network(decision_settings.observation_spec, "attention", seed=1, width=16), decision_settings, name="mine"
    )
    log = kw.simulate(crowded(60, 1), MACHINE, agent, "easy")
    assert log.run["policy"] == "mine" and np.isfinite(log.jobs()["start_s"]).all()
    with pytest.raises(InputError, match="policy 'mine' orders backfill candidates itself"):
        kw.simulate(crowded(60, 1), MACHINE, agent, "easy", backfill_order="sjf")


def test_loaded_agent_makes_same_decisions(tmp_path):
    decision_settings = DecisionSettings(queue_window=16, backfill_order="agent", max_wait_s=4000.0)
    network_ = network(decision_settings.observation_spec, "kernel", seed=3, width=16)
    save_network(network_, tmp_path / "agent.pt", provenance={"decision_settings": settings_to_dict(decision_settings)})
    agent = network_agent(tmp_path / "agent.pt")
    jobs = crowded(90, 2)
    assert agent.decision_settings == decision_settings
    assert np.array_equal(
        kw.simulate(jobs, MACHINE, agent, "easy").jobs()["start_s"],
        kw.simulate(jobs, MACHINE, NetworkAgent(network_, decision_settings), "easy").jobs()["start_s"],
    )
    save_network(network_, tmp_path / "bare.pt")
    with pytest.raises(InputError, match="without its decision settings"):
        network_agent(tmp_path / "bare.pt")


def test_unsupported_networks_have_no_engine_weights():
    assert engine_weights(network(DecisionSettings(hold=True).observation_spec, "kernel")) is None
    assert engine_weights(network(DecisionSettings().observation_spec, "attention")) is None


def test_windows_without_choices_run_to_the_end():
    sparse_jobs = kw.JobTable(
        job_id=np.arange(6), submit_s=np.arange(6) * 1000.0, runtime_s=np.full(6, 10.0), nodes=np.full(6, 1)
    )
    vec = BatchVectorEnv(
        2, jobs=sparse_jobs, cluster=MACHINE, episode_jobs=3, queue_window=4, autoreset_mode="SameStep"
    )
    assert weighted_metrics(network(vec.observation_spec, "kernel", width=8), vec, [0, 3]).tolist() == [0.0, 0.0]
    assert vec.simulator.states.clock["segments"].tolist() == [[3], [3]], "every job started once"


def predicted(count: int = 60, seed: int = 1) -> kw.JobTable:
    jobs = crowded(count, seed)
    estimate = np.maximum(jobs["estimate_s"], 1.0)
    return jobs.with_columns(
        planned_s=estimate * 1.5, limit_s=estimate * 4, expected_inverse_runtime=np.full(count, 0.3)
    )


def test_network_with_prediction_features(tmp_path):
    decision_settings = DecisionSettings(queue_window=16, backfill_order="agent", prediction_features=True)
    network_ = network(decision_settings.observation_spec, "kernel", seed=3, width=16)
    save_network(network_, tmp_path / "agent.pt", provenance={"decision_settings": settings_to_dict(decision_settings)})
    agent = network_agent(tmp_path / "agent.pt")
    assert agent.decision_settings.prediction_features and engine_weights(agent.network) is not None
    inside = kw.simulate(predicted(), MACHINE, agent, "easy").jobs()["start_s"]
    outside = run_policy(
        predicted(),
        MACHINE,
        lambda observation: greedy_actions(network_, observation),
        decision_settings=decision_settings,
    )
    assert np.array_equal(inside, outside.jobs()["start_s"])
    other_predictions = predicted().with_columns(expected_inverse_runtime=np.linspace(0.01, 1, 60))
    assert not np.array_equal(inside, kw.simulate(other_predictions, MACHINE, agent, "easy").jobs()["start_s"])
    with pytest.raises(InputError, match="the jobs have no predicted run times"):
        kw.simulate(crowded(60, 1), MACHINE, agent, "easy")


def test_network_with_request_features(tmp_path):
    decision_settings = DecisionSettings(queue_window=16, backfill_order="agent", request_features=True)
    network_ = network(decision_settings.observation_spec, "kernel", seed=3, width=16)
    save_network(network_, tmp_path / "agent.pt", provenance={"decision_settings": settings_to_dict(decision_settings)})
    agent = network_agent(tmp_path / "agent.pt")
    assert agent.decision_settings.request_features and engine_weights(agent.network) is not None
    jobs = crowded(60, 1).with_columns(priority=np.arange(60) % 7, queue=np.arange(60) % 3)
    inside = kw.simulate(jobs, MACHINE, agent, "easy").jobs()["start_s"]
    outside = run_policy(
        jobs, MACHINE, lambda observation: greedy_actions(network_, observation), decision_settings=decision_settings
    )
    assert np.array_equal(inside, outside.jobs()["start_s"])
    other = jobs.with_columns(priority=-jobs["priority"])
    assert not np.array_equal(inside, kw.simulate(other, MACHINE, agent, "easy").jobs()["start_s"])


def test_agents_without_prediction_field_still_load(tmp_path):
    # What files said then: no word of predictions, and these columns.
    saved = {
        "queue_window": 16,
        "backfill": "easy",
        "backfill_order": "agent",
        "at_limit": "extend",
        "placement": "first",
        "overrun": "double",
        "max_wait_s": None,
        "hold": False,
        "graph": False,
    }
    names = ("length", "width", "share", "area", "hour", "day", "patience", "fits", "spare", "place")
    decision_settings = DecisionSettings(queue_window=16, backfill_order="agent")
    assert decision_settings.observation_spec.features == names and settings_to_dict(decision_settings) == saved
    network_ = network(decision_settings.observation_spec, "kernel", seed=3, width=16)
    save_network(network_, tmp_path / "agent.pt", provenance={"decision_settings": saved})
    agent = network_agent(tmp_path / "agent.pt")
    assert not agent.decision_settings.prediction_features
    for jobs in (crowded(60, 1), predicted()):
        assert np.isfinite(kw.simulate(jobs, MACHINE, agent, "easy").jobs()["start_s"]).all()
