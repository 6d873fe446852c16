"""Training devices, learning rates, and resumed trainings that equal uninterrupted ones."""

from __future__ import annotations

import copy
import sys

import numpy as np
import pytest
import torch

from kilowait.errors import InputError, MissingExtraError, UnknownNameError
from kilowait.synth import fit_generator, trainer
from kilowait.synth.trainer import Training, device_of, one_cycle_schedule, one_thread
from tests.synth.test_generator import BRIEF, log

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
    """Interrupts a training; not caught by any handler of exceptions."""


class MemoryStore:
    """Checkpoint store in memory; raises Killed after `kill_after` writes."""

    def __init__(self, state=None, *, kill_after=None):
        self.state, self.kill_after, self.written = state, kill_after, 0

    def read_if_exists(self):
        return copy.deepcopy(self.state)

    def write(self, state):
        self.state, self.written = copy.deepcopy(state), self.written + 1
        if self.written == self.kill_after:
            raise Killed


class RunningSum:
    """An object with a state_dict: a running sum."""

    def __init__(self):
        self.total = 0.0

    def state_dict(self):
        return {"total": self.total}

    def load_state_dict(self, state):
        self.total = state["total"]


@pytest.fixture(autouse=True)
def frequent_checkpoints(monkeypatch):
    monkeypatch.setattr(trainer, "CHECKPOINT_EVERY", 2)


def run_steps(store, steps=7):
    """The steps, and the sum of one random number per step."""
    done, running_sum = [], RunningSum()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        for step in Training(0, CPU, print, store).steps(steps, {"running_sum": running_sum}):
            done.append(step)
            running_sum.total += torch.rand(()).item()
    return done, running_sum.total


class TestSteps:
    def test_all_steps_without_a_state(self):
        done, total = run_steps(None)
        assert done == list(range(7))
        assert run_steps(store := MemoryStore()) == (done, total)
        assert store.written == 3 and store.state["step"] == 6

    def test_last_step_writes_no_checkpoint(self):
        run_steps(store := MemoryStore(), steps=6)
        assert store.state["step"] == 4

    @pytest.mark.parametrize("kills", [[1], [2], [3], [1, 1]])
    def test_resumed_steps(self, kills):
        store = MemoryStore()
        for kill_after in kills:
            store = MemoryStore(store.state, kill_after=kill_after)
            with pytest.raises(Killed):
                run_steps(store)
        done, total = run_steps(store)
        assert done == list(range(2 * sum(kills), 7)) and total == run_steps(None)[1]


class TestRejectedStates:
    @pytest.mark.parametrize(
        ("change", "reason"),
        [
            ({"step": 7}, "it has completed 7 steps, and this training has 7"),
            ({"step": 0}, "it has completed 0 steps"),
            ({"step": "last"}, "invalid literal"),
            ({"running_sum": {}}, "it has no 'total'"),
            ({"running_sum": None}, "not subscriptable"),
            ({"torch": torch.zeros(3)}, "ByteTensor"),
        ],
    )
    def test_invalid_state(self, change, reason):
        run_steps(store := MemoryStore())
        store.state |= change
        with pytest.raises(InputError, match=rf"does not match this one \(.*{reason}.*\); start again with --force"):
            run_steps(store)

    @pytest.mark.parametrize("missing", ["running_sum", "torch", "step"])
    def test_incomplete_state(self, missing):
        run_steps(store := MemoryStore())
        del store.state[missing]
        with pytest.raises(InputError, match=f"it has no '{missing}'"):
            run_steps(store)


@pytest.fixture(scope="module")
def uninterrupted():
    """An uninterrupted fit of each network."""
    return {model: fit_generator(log(), model, seed=3, **tiny) for model, tiny in NETWORKS.items()}


def killed_state(model, kill_after=1):
    store = MemoryStore(kill_after=kill_after)
    with pytest.raises(Killed):
        fit_generator(log(), model, seed=3, checkpoints=store, **NETWORKS[model])
    return store.state


@pytest.mark.parametrize("kill_after", [1, 3])
@pytest.mark.parametrize("model", NETWORKS)
def test_resumed_fit_equals_the_uninterrupted_fit(uninterrupted, model, kill_after):
    state = killed_state(model, kill_after)
    assert state["step"] == 2 * kill_after
    resumed = fit_generator(log(), model, seed=3, checkpoints=MemoryStore(state), **NETWORKS[model])
    one, two = uninterrupted[model]._state(), resumed._state()
    assert set(one) == set(two) and all(np.array_equal(one[name], two[name]) for name in one)
    one, two = (each.sample(300, seed=1) for each in (uninterrupted[model], resumed))
    assert all(np.array_equal(one[name], two[name], equal_nan=True) for name in one.columns)


@pytest.mark.parametrize("model", NETWORKS)
def test_state_of_another_network_is_rejected(model):
    state, other = killed_state(model), "ctgan" if model == "tvae" else "tvae"
    with pytest.raises(InputError, match="does not match this one .*; start again with --force"):
        fit_generator(log(), other, seed=3, checkpoints=MemoryStore(state), **NETWORKS[other])
    with pytest.raises(InputError, match=r"does not match this one \(.*size mismatch.*start again with --force"):
        fit_generator(log(), model, seed=3, checkpoints=MemoryStore(state), **NETWORKS[model] | {"width": 16})


def test_auto_uses_a_gpu_if_available(monkeypatch):
    assert device_of("cpu").type == "cpu"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert device_of("auto").type == "cpu"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert device_of("auto").type == device_of("cuda").type == "cuda"
    assert device_of("cpu").type == "cpu"


def test_cuda_without_a_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    message = r"device is cuda, and torch finds no NVIDIA GPU on this machine; use cpu, or auto"
    with pytest.raises(InputError, match=message):
        fit_generator(log(150), "tvae", device="cuda", **BRIEF)


def test_misspelt_device():
    with pytest.raises(UnknownNameError, match="unknown device 'cudo'; did you mean 'cuda'"):
        fit_generator(log(150), "diffusion", device="cudo", **BRIEF)


def test_without_torch(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtraError, match=r"\[learn\]"):
        fit_generator(log(150), "ctgan", **BRIEF)


def test_one_thread_restores_the_number_of_threads():
    previous = torch.get_num_threads()
    with one_thread():
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == previous


def learning_rates(steps, max_rate=0.5):
    optimizer = torch.optim.Adam([torch.zeros(1, requires_grad=True)], max_rate)
    schedule, rates = one_cycle_schedule(optimizer, max_rate, steps), []
    for _ in range(steps):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    return np.array(rates)


def test_rate_rises_in_the_first_tenth_and_then_falls():
    rates = learning_rates(200)
    top = int(rates.argmax())
    assert 15 <= top <= 25 and rates[top] == pytest.approx(0.5, rel=0.01)
    assert (np.diff(rates[: top + 1]) > 0).all() and (np.diff(rates[top:]) < 0).all()


@pytest.mark.parametrize("steps", range(1, 25))
def test_any_number_of_steps(steps):
    rates = learning_rates(steps)
    assert len(rates) == steps and (rates > 0).all() and (rates <= 0.5).all()
