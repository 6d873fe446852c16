"""kilowait export."""

import numpy as np
import onnxruntime
import pytest

from kilowait.agents.network_policies import settings_to_dict
from kilowait.agents.networks import network, save_network
from kilowait.envs.batch_env import DecisionSettings


@pytest.fixture
def agent(tmp_path):
    settings = DecisionSettings(queue_window=8)
    provenance = {"env": "kilowait/Batch-v0", "decision_settings": settings_to_dict(settings)}
    return save_network(
        network(settings.observation_spec, width=8), tmp_path / "run" / "agent.pt", provenance=provenance
    )


def test_exported_network_runs_in_onnxruntime(kilowait, agent):
    description = kilowait("export", agent.parent, "--json").json()
    assert description["inputs"]["mask"] == "int8 (batch, 8)" and description["outputs"] == ["scores"]
    session = onnxruntime.InferenceSession(agent.parent.with_name("run.onnx"), providers=["CPUExecutionProvider"])
    jobs = np.ones((3, 8, 10), np.float32)
    mask = np.eye(8, dtype=np.int8)[:3]
    scores = session.run(None, {"jobs": jobs, "mask": mask, "summary": np.zeros((3, 11), np.float32)})[0]
    assert scores.argmax(axis=1).tolist() == [0, 1, 2]
    assert [file.name for file in agent.parent.iterdir()] == ["agent.pt"]  # the folder can be trained on
    assert "replace it with --force" in kilowait("export", agent, "--to", "onnx").error()
    result = kilowait("export", agent, "--to", "torchscript", "--out", agent.parent / "x.ts")
    assert result.status == 0 and "-> scores float32 (batch, 8)" in result.out
    assert (agent.parent / "x.ts").exists()


def test_error_messages(kilowait, agent, tmp_path):
    assert "did you mean 'torchscript'" in kilowait("export", agent, "--to", "torchscrip").error()
    assert "contains no agent.pt" in kilowait("export", tmp_path).error()
    (tmp_path / "broken.pt").write_bytes(b"\x00" * 64)
    assert "cut off" in kilowait("export", tmp_path / "broken.pt").error()
    (tmp_path / "file").write_text("")
    assert "cannot write" in kilowait("export", agent, "--out", tmp_path / "file" / "x.onnx").error()
