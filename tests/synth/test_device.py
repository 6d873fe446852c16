"""Training devices of networks: names, and errors where a device is missing."""

from __future__ import annotations

import sys

import pytest
import torch

from kilowait.errors import InputError, MissingExtraError, UnknownNameError
from kilowait.synth import fit_generator
from kilowait.synth.device import device_of, one_thread
from tests.synth.test_generator import BRIEF, log


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
