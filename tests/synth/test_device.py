"""Where networks learn: names of devices, and what is said where there is none."""

from __future__ import annotations

import sys

import pytest
import torch

from kilowait.errors import InputError, MissingExtraError, UnknownNameError
from kilowait.synth import fit_generator
from kilowait.synth.device import device_of, one_thread
from tests.synth.test_generator import BRIEF, log


def test_auto_takes_what_there_is(monkeypatch):
    assert device_of("cpu").type == "cpu"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert device_of("auto").type == "cpu"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert device_of("auto").type == device_of("cuda").type == "cuda"
    assert device_of("cpu").type == "cpu"


def test_no_graphics_card(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    words = r"device is cuda, and torch finds no NVIDIA GPU on this machine; use cpu, or auto"
    with pytest.raises(InputError, match=words):
        fit_generator(log(150), "tvae", device="cuda", **BRIEF)


def test_a_misspelt_device():
    with pytest.raises(UnknownNameError, match="unknown device 'cudo'; did you mean 'cuda'"):
        fit_generator(log(150), "diffusion", device="cudo", **BRIEF)


def test_without_torch(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtraError, match=r"kilowait\[learn\]"):
        fit_generator(log(150), "ctgan", **BRIEF)


def test_one_thread_within_and_as_before_after():
    before = torch.get_num_threads()
    with one_thread():
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == before
