"""Exported networks take the same actions in other runtimes, on real observations."""

import json
import warnings

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

import kilowait as kw
from kilowait.agents.export import FORMATS, OPSET, export_network
from kilowait.agents.networks import network, q_network
from kilowait.agents.networks.heads import greedy_actions
from kilowait.envs.batch_env import BatchVectorEnv
from kilowait.envs.gpu_env import GpuVectorEnv
from kilowait.errors import InputError, MissingExtraError, UnknownNameError
from kilowait.synth import gpu_workload

SIZES = {"width": 16, "depth": 1, "heads": 2}


def network_with_clear_scores(kind, vec, seed=0):
    """A network with clearly different scores: those of initial heads are nearly equal."""
    agent = network(vec.spec_of_observation, kind, seed=seed, **SIZES)
    with torch.no_grad():
        for weights in agent.outputs.parameters():
            weights.mul_(30.0)
    return agent


def batch(graph):
    jobs = kw.lublin(400, 64, load=1.3, seed=3)
    return BatchVectorEnv(
        5, jobs=jobs, cluster=kw.Cluster.from_nodes(64), episode_jobs=80, queue_window=16, graph=graph, hold=graph
    )


def gpus():
    cluster = kw.Cluster.preset("gpu-mixed")
    return GpuVectorEnv(5, jobs=gpu_workload(300, cluster, load=1.2, seed=1), cluster=cluster, queue_window=12)


CASES = {
    "batch-kernel": ("kernel", lambda: batch(False)),
    "batch-attention": ("attention", lambda: batch(False)),
    "batch-gat": ("gat", lambda: batch(True)),
    "gpu-kernel": ("kernel", gpus),
    "gpu-attention": ("attention", gpus),
}


@pytest.fixture(scope="module", params=CASES)
def exported_case(request):
    """A network and observations of its episodes: batches of five and of one."""
    kind, make = CASES[request.param]
    vec = make()
    agent = network_with_clear_scores(kind, vec)
    observation, _ = vec.reset(seed=0)
    observations = []
    for _ in range(40):
        observations.append({name: array.copy() for name, array in observation.items()})
        observation = vec.step(greedy_actions(agent, observation))[0]
    vec.close()
    observations += [{name: array[:1] for name, array in one.items()} for one in observations[:5]]
    return agent, observations


def run_onnx(path):
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return lambda observation: session.run(["scores"], observation)[0]


def run_torchscript(path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        loaded = torch.jit.load(path)
    return lambda observation: loaded(*(torch.from_numpy(array) for array in observation.values())).detach().numpy()


def run_pt2(path):
    loaded = torch.export.load(path).module()
    return lambda observation: (
        loaded(**{name: torch.from_numpy(array) for name, array in observation.items()}).detach().numpy()
    )


RUNNERS = {"onnx": run_onnx, "torchscript": run_torchscript, "pt2": run_pt2}


@pytest.mark.parametrize("to", FORMATS)
def test_exported_network_takes_same_actions(exported_case, to, tmp_path):
    agent, observations = exported_case
    if to == "pt2" and agent.config["kind"] == "attention":
        pytest.skip("onnx goes through the same program")
    path = tmp_path / f"agent.{to}"
    assert list(export_network(agent, path, to=to)) == list(observations[0])
    run = RUNNERS[to](path)
    actions = []
    for observation in observations:
        scores = run(observation)
        expected = greedy_actions(agent, observation)
        assert np.array_equal(np.isneginf(scores), observation["mask"] == 0)
        assert np.array_equal(scores.argmax(axis=1), expected)
        actions += expected.tolist()
    assert len(set(actions)) > 1  # not always the first
    if to == "onnx":
        check_onnx_file(onnx.load(path), agent, list(observations[0]))


def check_onnx_file(model, agent, inputs):
    onnx.checker.check_model(model)
    assert [one.name for one in model.graph.input] == inputs
    assert [one.name for one in model.graph.output] == ["scores"]
    assert {one.version for one in model.opset_import if one.domain == ""} == {OPSET}
    metadata = json.loads({one.key: one.value for one in model.metadata_props}["kilowait"])
    assert metadata["features"] == list(agent.spec.features) and metadata["slots"] == agent.spec.slots


def test_q_networks_with_atoms_and_noise_are_exported_without_noise(tmp_path):
    vec = batch(False)
    agent = q_network(vec.spec_of_observation, "kernel", noisy=True, atoms=5, **SIZES)
    agent.sample_noise(torch.Generator().manual_seed(1))
    agent.train()
    observation, _ = vec.reset(seed=1)
    export_network(agent, tmp_path / "q.ts", to="torchscript")
    assert np.array_equal(run_torchscript(tmp_path / "q.ts")(observation).argmax(1), greedy_actions(agent, observation))
    assert agent.training
    vec.close()


def test_errors(tmp_path, monkeypatch):
    vec = batch(False)
    agent = network_with_clear_scores("kernel", vec)
    with pytest.raises(UnknownNameError, match="did you mean 'onnx'"):
        export_network(agent, tmp_path / "x", to="onxx")
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot write .*name another file"):
        export_network(agent, tmp_path / "file" / "x.ts", to="torchscript")
    monkeypatch.setattr("kilowait.agents.export.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"\[export\]"):
        export_network(agent, tmp_path / "x.onnx")
    vec.close()
