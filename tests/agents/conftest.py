"""One thread: tests run side by side, and two OpenMP pools on one core wait for one another."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    import torch

    torch.set_num_threads(1)
