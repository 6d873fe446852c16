"""Checkpoint files: round trips, no code execution, detection of damage, atomic writes."""

from __future__ import annotations

import math
import os
import pickle

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.numpy import save_file

from kilowait.agents.networks import network, q_network
from kilowait.agents.rl import load_network, save_network, state_file
from kilowait.agents.rl.state_file import read_state, write_state
from kilowait.errors import InputError
from tests.agents.support.two_job_env import Spec, TwoJobs

STATE = {
    "words": "über",
    "numbers": [1, 2.5, True, None, 2**100, -math.inf],
    "pair": (1, (2, 3)),
    "by number": {0: torch.arange(3), 1: {"step": torch.tensor(4.0)}},
    "nested": {"a": {"b": np.arange(6, dtype=np.int8).reshape(2, 3)[:, ::2]}},
    "flags": torch.tensor([True, False]),
    "empty": torch.zeros(0, 3),
    "point": np.array(7),
    "big": np.array([2**64 - 1], np.uint64),
    "names": np.array([["kth", "sdsc-sp2"]]),
    "records": np.array([(1, 2.5), (3, 4.5)], np.dtype([("job", "i4"), ("s", "f8")], align=True)),
}


def test_nested_state_round_trip(tmp_path):
    path = write_state(tmp_path / "deep" / "state", "thing", STATE)
    loaded_state = read_state(path, "thing")
    assert list(loaded_state) == list(STATE)
    for name in ("words", "numbers", "pair"):
        assert loaded_state[name] == STATE[name]
    assert (
        torch.equal(loaded_state["by number"][0], torch.arange(3))
        and loaded_state["by number"][1]["step"].tolist() == 4.0
    )
    assert loaded_state["empty"].shape == (0, 3) and loaded_state["flags"].dtype == torch.bool
    for name in ("point", "big", "names", "records"):
        assert loaded_state[name].shape == STATE[name].shape
        assert loaded_state[name].dtype == STATE[name].dtype and (loaded_state[name] == STATE[name]).all()
    assert loaded_state["nested"]["a"]["b"].tolist() == [[0, 2], [3, 5]]
    loaded_state["flags"][0] = False  # can be written to
    assert [field.name for field in path.parent.iterdir()] == ["state"]


def test_file_has_default_permissions(tmp_path):
    (tmp_path / "usual").touch()
    modes = [field.stat().st_mode for field in (tmp_path / "usual", write_state(tmp_path / "s", "thing", {}))]
    assert modes[0] == modes[1]


def test_nan_round_trip(tmp_path):
    assert math.isnan(read_state(write_state(tmp_path / "s", "thing", {"x": math.nan}), "thing")["x"])


def test_same_state_same_bytes(tmp_path):
    field, other = (write_state(tmp_path / name, "thing", STATE).read_bytes() for name in "ab")
    assert field == other


@pytest.mark.parametrize("value", [object(), {1, 2}, np.array([None])])
def test_unsupported_values_are_errors(tmp_path, value):
    with pytest.raises(InputError, match="/odd is a.* which cannot be saved"):
        write_state(tmp_path / "s", "thing", {"odd": value})
    assert not list(tmp_path.iterdir())


def test_write_is_atomic(tmp_path, monkeypatch):
    path = write_state(tmp_path / "s", "thing", {"x": 1})

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(InputError, match="cannot write .*No space left.*the earlier file is unchanged"):
        write_state(path, "thing", {"x": 2})
    assert read_state(path, "thing") == {"x": 1}
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("at", range(0, 1000, 37))
def test_flipped_bit_is_detected(tmp_path, at):
    path = write_state(
        tmp_path / "s", "thing", {"weights": torch.randn(100, generator=torch.Generator().manual_seed(0))}
    )
    content = bytearray(path.read_bytes())
    content[-1 - at % 400] ^= 1 << at % 8
    path.write_bytes(content)
    with pytest.raises(InputError, match="is damaged: its digest does not match"):
        read_state(path, "thing")


@pytest.mark.parametrize("length", [0, 5, 8, 100, -1])
def test_truncated_file_is_an_error(tmp_path, length):
    path = write_state(tmp_path / "s", "thing", STATE)
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(InputError, match="is no thing, or is cut off"):
        read_state(path, "thing")


def test_foreign_files_are_errors(tmp_path):
    with pytest.raises(InputError, match="there is no .*; name a file or folder that training wrote"):
        read_state(tmp_path / "none", "thing")
    path = write_state(tmp_path / "s", "other thing", {})
    with pytest.raises(InputError, match="is a other thing, not a thing"):
        read_state(path, "thing")
    save_file({"x": np.zeros(3)}, tmp_path / "theirs")
    with pytest.raises(InputError, match="is no thing: kilowait did not write it"):
        read_state(tmp_path / "theirs", "thing")


def test_other_version_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(state_file, "VERSION", 7)
    path = write_state(tmp_path / "s", "thing", {})
    monkeypatch.undo()
    with pytest.raises(InputError, match="is a thing of version 7; this kilowait reads version 2: train again"):
        read_state(path, "thing")


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
    state = read_state(path, "kilowait network")
    change(state)
    write_state(path, "kilowait network", state)


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


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([], "its state has a list without a kind"),
        ({"$dict": 3}, "'3', not a list"),
        ({"$dict": [[["x"], 1]]}, "does not consist of names and values"),
        ({"$dict": [["x", {"$code": "1"}]]}, "an object .'\\$code', not one of|an object '\\$code', not one of"),
        (
            {"$dict": [["x", {"$array": "/x"}], ["y", {"$array": "/x"}]]},
            "names the array '/x', which is missing or was named",
        ),
        ({"$dict": [["x", {"$float": "1e999"}]]}, "the number '1e999'"),
        ({"$dict": [["x", {"$strings": ["<U999999", [1000], ["x"] * 1000]}]]}, "strings of 3,999,996,000 bytes"),
        ({"$dict": [["x", {"$strings": ["O", [1], ["x"]]}]]}, "strings of type 'O'"),
        ({"$dict": [["x", {"$strings": ["<U1", [-1], ["x"]]}]]}, "an array of shape"),
        ({"$dict": [["x", {"$records": ["/x", [["a", "O"]], [1]]}]]}, "a field of type 'O'"),
        ({"$dict": [["x", {"$records": ["/x", [["a", "<f8"]], [2**50]]}]]}, "an array of shape"),
        ({"$dict": [["x", {"$records": ["/x", [["a", "<f8"]], [7]]}]]}, "8 bytes for 7 records of 8 bytes"),
        (3, "its state is not a dict"),
    ],
)
def test_invalid_states_are_errors(tmp_path, content, message, monkeypatch):
    def packed(state, arrays):
        arrays["/x"] = np.zeros(8, np.uint8)
        return content

    monkeypatch.setattr(state_file, "packed_state", packed)
    path = write_state(tmp_path / "s", "thing", {})
    with pytest.raises(InputError, match=f"s is damaged: .*({message}).*train again"):
        read_state(path, "thing")


def test_offsets_beyond_the_file_are_errors(tmp_path):
    path = write_state(tmp_path / "s", "thing", {"x": np.zeros(4), "y": np.ones(2)})
    content = path.read_bytes()
    for old, new in (
        (b'"shape":[4]', b'"shape":[9]'),
        (b'"data_offsets":[0,32]', b'"data_offsets":[8,40]'),
        (b"F64", b"X64"),
    ):
        assert old in content
        path.write_bytes(content.replace(old, new, 1))
        with pytest.raises(InputError, match="is no thing, or is cut off"):
            read_state(path, "thing")
    path.write_bytes((2**62).to_bytes(8, "little") + content[8:])
    with pytest.raises(InputError, match="shorter than its header says"):
        read_state(path, "thing")
