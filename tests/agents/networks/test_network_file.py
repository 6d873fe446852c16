"""Files of networks: round trips, no code execution, and errors for other observations and invalid files."""

from __future__ import annotations

import math
import os
import pickle

import pytest
import torch
from safetensors import safe_open

from kilowait.agents.networks import load_network, network, q_network, save_network
from kilowait.agents.networks.factory import FORMAT
from kilowait.errors import InputError
from tests.agents.support.two_job_env import Spec, TwoJobs


def test_pickle_is_not_loaded(tmp_path):
    class Evil:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "ran"),)

    (tmp_path / "agent.pt").write_bytes(pickle.dumps(Evil()))
    with pytest.raises(InputError, match="is no kilowait network, or is cut off"):
        load_network(tmp_path / "agent.pt")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("build", [network, lambda *a, **k: q_network(*a, noisy=True, atoms=5, span=(-3.0, 1.0), **k)])
@pytest.mark.parametrize("kind", ["kernel", "attention", "gat"])
def test_network_round_trip(tmp_path, build, kind):
    original = build(Spec(), kind, seed=5, width=16, depth=1).eval()
    path = save_network(original, tmp_path / "agent.pt", provenance={"trace": "KTH", "seed": 5})
    loaded = load_network(path, Spec())
    observation = {name: torch.from_numpy(rows) for name, rows in TwoJobs(4).reset(seed=0)[0].items()}
    assert torch.equal(original.scores(observation), loaded.scores(observation))
    assert loaded.provenance == {"trace": "KTH", "seed": 5}
    with safe_open(path, framework="np") as file:  # readable by the safetensors library
        assert any("weights/body" in name for name in file.keys())  # noqa: SIM118


def test_network_for_other_spec_is_an_error(tmp_path):
    path = save_network(network(Spec(), "kernel"), tmp_path / "agent.pt")
    with pytest.raises(InputError, match="trained on an environment with slots 4; this one has 9"):
        load_network(path, Spec(slots=9))
    with pytest.raises(InputError, match="with features length_h, wait_h, present; this one has length_h, nodes:"):
        load_network(path, Spec(features=("length_h", "nodes")))


def rewritten(path, change):
    """Change the state of an agent's file and write it with a valid digest."""
    state = FORMAT.read(path)
    change(state)
    FORMAT.write(path, state)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda s: s["config"]["sizes"].update(depth=10**6),
            "config.sizes.depth is 1000000; it must be a whole number",
        ),
        (lambda s: s["config"]["sizes"].update(width=10**9), "config.sizes.width is 1000000000"),
        (lambda s: s["config"]["sizes"].update(depth=60), "weights has other names than the network"),
        (lambda s: s["config"]["sizes"].update(heads=5), "width 16 is not divisible by 5"),
        (lambda s: s["config"]["sizes"].update(more=5), "config.sizes has the unknown field 'more'"),
        (lambda s: s["config"].update(kind="fame"), "config.kind is 'fame'; it must be one of kernel"),
        (lambda s: s["config"].update(head=None), "config.head is null"),
        (lambda s: s["config"].update(atoms=3), "config has the unknown field 'atoms'"),
        (lambda s: s.update(config=None), "config is null"),
        (lambda s: s["spec"].update(slots=2**40), "spec.slots is 1099511627776"),
        (lambda s: s["spec"].update(features="length"), "spec.features is 'length'"),
        (lambda s: s["spec"].update(features=["x"]), "weights.body.job.weight is torch.float32 .16, 3.; the network"),
        (lambda s: s.update(spec=[]), "spec is a list of 0"),
        (lambda s: s.update(provenance="me"), "provenance is 'me'"),
        (lambda s: s.update(weights=None), "weights has other names"),
        (lambda s: s["weights"].popitem(), "weights has other names than the network, such as outputs"),
        (
            lambda s: s["weights"].update({"body.job.bias": torch.zeros(16, dtype=torch.float64)}),
            "body.job.bias is torch.float64",
        ),
        (lambda s: s["weights"].update({"body.job.bias": 3}), "weights.body.job.bias is int"),
        (
            lambda s: s["weights"]["body.job.bias"].fill_(math.nan),
            "weights.body.job.bias has values that are not finite",
        ),
    ],
)
def test_invalid_agents_are_errors(tmp_path, change, message):
    path = save_network(network(Spec(), "kernel", width=16), tmp_path / "agent.pt")
    rewritten(path, change)
    with pytest.raises(InputError, match=rf"agent.pt.*{message}"):
        load_network(path)
