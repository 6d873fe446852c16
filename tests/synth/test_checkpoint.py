"""A training that is killed and gone on with is the one that was not killed; states of others are refused."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

from kilowait.errors import InputError
from kilowait.synth import checkpoint, fit_generator
from kilowait.synth.checkpoint import checkpointed_steps
from tests.synth.test_generator import log

ROWS = {"steps": 7, "width": 8, "batch": 50}
NETWORKS = {
    "transformer": {"passes": 2, "width": 8, "layers": 1},
    "ctgan": ROWS,
    "tvae": ROWS,
    "copulagan": ROWS,
    "diffusion": ROWS | {"draw_steps": 2},
}
CPU = torch.device("cpu")


class Killed(BaseException):
    """What a training is interrupted by; nobody catches it."""


class Kept:
    """A state in memory; killed once so many were kept."""

    def __init__(self, state=None, *, kill_after=None):
        self.state, self.kill_after, self.written = state, kill_after, 0

    def read(self):
        return copy.deepcopy(self.state)

    def write(self, state):
        self.state, self.written = copy.deepcopy(state), self.written + 1
        if self.written == self.kill_after:
            raise Killed


class Sum:
    """Adds up what it is given."""

    def __init__(self):
        self.total = 0.0

    def state_dict(self):
        return {"total": self.total}

    def load_state_dict(self, state):
        self.total = state["total"]


@pytest.fixture(autouse=True)
def often(monkeypatch):
    monkeypatch.setattr(checkpoint, "CHECKPOINT_EVERY", 2)


def summed(keep, steps=7):
    """The numbers of the steps taken, and the sum of as many random numbers."""
    taken, whole = [], Sum()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        for step in checkpointed_steps(steps, keep, CPU, whole=whole):
            taken.append(step)
            whole.total += torch.rand(()).item()
    return taken, whole.total


class TestSteps:
    def test_all_of_them_where_nothing_is_kept(self):
        taken, total = summed(None)
        assert taken == list(range(7))
        assert summed(keep := Kept()) == (taken, total)
        assert keep.written == 3 and keep.state["step"] == 6

    def test_the_last_is_not_kept(self):
        summed(keep := Kept(), steps=6)
        assert keep.state["step"] == 4

    @pytest.mark.parametrize("kills", [[1], [2], [3], [1, 1]])
    def test_those_that_are_left(self, kills):
        keep = Kept()
        for kill_after in kills:
            keep = Kept(keep.state, kill_after=kill_after)
            with pytest.raises(Killed):
                summed(keep)
        taken, total = summed(keep)
        assert taken == list(range(2 * sum(kills), 7)) and total == summed(None)[1]


class TestRefused:
    @pytest.mark.parametrize(
        ("change", "why"),
        [
            ({"step": 7}, "it has completed 7 steps, and this training has 7"),
            ({"step": 0}, "it has completed 0 steps"),
            ({"step": "last"}, "invalid literal"),
            ({"whole": {}}, "it has no 'total'"),
            ({"whole": None}, "not subscriptable"),
            ({"torch": torch.zeros(3)}, "ByteTensor"),
        ],
    )
    def test_a_bad_state(self, change, why):
        summed(keep := Kept())
        keep.state |= change
        with pytest.raises(
            InputError, match=rf"does not match this one \(.*{why}.*\); start again with --force"
        ):
            summed(keep)

    @pytest.mark.parametrize("missing", ["whole", "torch", "step"])
    def test_one_that_lacks_something(self, missing):
        summed(keep := Kept())
        del keep.state[missing]
        with pytest.raises(InputError, match=f"it has no '{missing}'"):
            summed(keep)


@pytest.fixture(scope="module")
def whole():
    """Of each network what an unbroken fit gives."""
    return {model: fit_generator(log(), model, seed=3, **tiny) for model, tiny in NETWORKS.items()}


def killed(model, kill_after=1):
    keep = Kept(kill_after=kill_after)
    with pytest.raises(Killed):
        fit_generator(log(), model, seed=3, checkpoints=keep, **NETWORKS[model])
    return keep.state


@pytest.mark.parametrize("kill_after", [1, 3])
@pytest.mark.parametrize("model", NETWORKS)
def test_a_network_that_is_gone_on_with_is_the_same(whole, model, kill_after):
    state = killed(model, kill_after)
    assert state["step"] == 2 * kill_after
    again = fit_generator(log(), model, seed=3, checkpoints=Kept(state), **NETWORKS[model])
    one, two = whole[model]._state(), again._state()
    assert set(one) == set(two) and all(np.array_equal(one[name], two[name]) for name in one)
    one, two = (each.sample(300, seed=1) for each in (whole[model], again))
    assert all(np.array_equal(one[name], two[name], equal_nan=True) for name in one.columns)


@pytest.mark.parametrize("model", NETWORKS)
def test_a_network_is_not_gone_on_with_as_another(model):
    state, other = killed(model), "ctgan" if model == "tvae" else "tvae"
    with pytest.raises(InputError, match="does not match this one .*; start again with --force"):
        fit_generator(log(), other, seed=3, checkpoints=Kept(state), **NETWORKS[other])
    with pytest.raises(
        InputError, match=r"does not match this one \(.*size mismatch.*start again with --force"
    ):
        fit_generator(log(), model, seed=3, checkpoints=Kept(state), **NETWORKS[model] | {"width": 16})
