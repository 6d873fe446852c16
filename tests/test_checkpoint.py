"""Checkpoint files: round trips, detection of damage, atomic writes, identity of the inputs."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.numpy import save, save_file

from kilowait import checkpoint
from kilowait.checkpoint import Checkpoint, StateFormat, check_identity
from kilowait.errors import InputError
from kilowait.files.array_file import write_safetensors

THING = StateFormat("thing", version=2, remedy="train again")

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
    path = THING.write(tmp_path / "deep" / "state", STATE)
    loaded_state = THING.read(path)
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
    modes = [field.stat().st_mode for field in (tmp_path / "usual", THING.write(tmp_path / "s", {}))]
    assert modes[0] == modes[1]


def test_nan_round_trip(tmp_path):
    assert math.isnan(THING.read(THING.write(tmp_path / "s", {"x": math.nan}))["x"])


def test_same_state_same_bytes(tmp_path):
    field, other = (THING.write(tmp_path / name, STATE).read_bytes() for name in "ab")
    assert field == other


@pytest.mark.parametrize("value", [object(), {1, 2}, np.array([None])])
def test_unsupported_values_are_errors(tmp_path, value):
    with pytest.raises(InputError, match="/odd is a.* which cannot be saved"):
        THING.write(tmp_path / "s", {"odd": value})
    assert not list(tmp_path.iterdir())


def test_write_is_atomic(tmp_path, monkeypatch):
    path = THING.write(tmp_path / "s", {"x": 1})

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(InputError, match="cannot write .*No space left.*the earlier file is unchanged"):
        THING.write(path, {"x": 2})
    assert THING.read(path) == {"x": 1}
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("at", range(0, 1000, 37))
def test_flipped_bit_is_detected(tmp_path, at):
    path = THING.write(tmp_path / "s", {"weights": torch.randn(100, generator=torch.Generator().manual_seed(0))})
    content = bytearray(path.read_bytes())
    content[-1 - at % 400] ^= 1 << at % 8
    path.write_bytes(content)
    with pytest.raises(InputError, match="is damaged: its digest does not match"):
        THING.read(path)


@pytest.mark.parametrize("length", [0, 5, 8, 100, -1])
def test_truncated_file_is_an_error(tmp_path, length):
    path = THING.write(tmp_path / "s", STATE)
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(InputError, match="is no thing, or is cut off"):
        THING.read(path)


def test_foreign_files_are_errors(tmp_path):
    with pytest.raises(InputError, match="there is no .*; name a file or folder that training wrote"):
        THING.read(tmp_path / "none")
    path = StateFormat("other thing", 2, "train again").write(tmp_path / "s", {})
    with pytest.raises(InputError, match="is a other thing, not a thing"):
        THING.read(path)
    save_file({"x": np.zeros(3)}, tmp_path / "theirs")
    with pytest.raises(InputError, match="is no thing: kilowait did not write it"):
        THING.read(tmp_path / "theirs")


@pytest.mark.parametrize("name", ["s.safetensors", "s.json"])
def test_other_version_is_an_error(tmp_path, name):
    path = replace(THING, version=1).write(tmp_path / name, {})
    with pytest.raises(InputError, match="is a thing of version 1; this kilowait reads version 2: train again"):
        THING.read(path)


PLAIN = {"words": "über", "numbers": [1, 2.5, True, None, 2**100, -math.inf], "pair": (1, (2, 3)), "by number": {0: {}}}


def test_json_file_round_trip(tmp_path):
    path = THING.write(tmp_path / "s.json", PLAIN)
    assert THING.read(path) == PLAIN and json.loads(path.read_text())["format"] == "thing"


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda text: text[: len(text) // 2], "is no thing, or is cut off .*; train again"),
        (lambda text: text.replace("2.5", "2.6"), "is damaged: its digest does not match; train again"),
        (lambda text: "[1, 2]", "is no thing: kilowait did not write it"),
        (lambda text: '{"format": "a list"}', "is no thing: kilowait did not write it"),
    ],
)
def test_damaged_json_file_is_an_error(tmp_path, damage, message):
    path = THING.write(tmp_path / "s.json", PLAIN)
    path.write_text(damage(path.read_text()))
    with pytest.raises(InputError, match=message):
        THING.read(path)


def test_checkpoint_is_read_with_the_same_identity_only(tmp_path):
    identity = {"seed": 1, "settings": {"gamma": 0.9, "layers": (8, 8)}, "jobs": None}
    path = tmp_path / "last.safetensors"
    assert Checkpoint(path, THING, identity).read_if_exists() is None
    Checkpoint(path, THING, identity).write({"step": 3, "weights": np.ones(2)})
    assert Checkpoint(path, THING, identity).read()["step"] == 3
    for other, message in (
        ({"seed": 2, "jobs": "7"}, r"last.safetensors was started with seed 1, not 2; resume with the same value, or"),
        ({"settings": {"gamma": 1.0, "layers": (8, 8)}}, "started with settings gamma 0.9, not 1.0;"),
        ({"settings": {"gamma": 0.9}}, r"started with settings layers \(8, 8\), not None;"),
        ({"jobs": "7 (digest ab)"}, r"started with jobs None, not 7 \(digest ab\); .* or train again"),
    ):
        with pytest.raises(InputError, match=message):
            Checkpoint(path, THING, {**identity, **other}).read()
    Checkpoint(path, THING, {**identity, "seed": 2}, may_differ=("seed",)).read()
    with pytest.raises(InputError, match="started with settings gamma 0.9, not None"):
        check_identity(identity, {**identity, "settings": {"layers": (8, 8)}}, path, remedy="train again")


def test_checkpoint_without_identity_is_an_error(tmp_path):
    THING.write(tmp_path / "s", {"step": 3})
    with pytest.raises(InputError, match="s is damaged: it has no identity; train again"):
        Checkpoint(tmp_path / "s", THING, {"seed": 1}).read()


def test_files_have_the_bytes_of_the_safetensors_library(tmp_path):
    kinds = ("?", "u1", "i1", "i2", "u2", "f2", "i4", "u4", "f4", "f8", "i8", "u8")
    arrays = {f"ü{kind}": np.arange(4).astype(kind).reshape(2, 2) for kind in kinds}
    arrays |= {f"a{kind}": np.zeros((0, 3), kind) for kind in kinds} | {"point": np.array(7.0)}
    write_safetensors(tmp_path / "s", arrays, {"note": 'ü "x"'})
    assert (tmp_path / "s").read_bytes() == save(arrays, {"note": 'ü "x"'})
    with pytest.raises(InputError, match="cannot write .*s: x is an array of complex128; use numbers"):
        write_safetensors(tmp_path / "s", {"x": np.zeros(2, complex)}, {})


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

    monkeypatch.setattr(checkpoint, "packed_state", packed)
    path = THING.write(tmp_path / "s", {})
    with pytest.raises(InputError, match=f"s is damaged: .*({message}).*train again"):
        THING.read(path)


def test_offsets_beyond_the_file_are_errors(tmp_path):
    path = THING.write(tmp_path / "s", {"x": np.zeros(4), "y": np.ones(2)})
    content = path.read_bytes()
    for old, new in (
        (b'"shape":[4]', b'"shape":[9]'),
        (b'"data_offsets":[0,32]', b'"data_offsets":[8,40]'),
        (b"F64", b"X64"),
    ):
        assert old in content
        path.write_bytes(content.replace(old, new, 1))
        with pytest.raises(InputError, match="is no thing, or is cut off"):
            THING.read(path)
    path.write_bytes((2**62).to_bytes(8, "little") + content[8:])
    with pytest.raises(InputError, match="shorter than its header says"):
        THING.read(path)
