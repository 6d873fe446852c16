"""One thread: tests run in parallel, and two OpenMP pools on one core wait for each other."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    import torch

    torch.set_num_threads(1)
