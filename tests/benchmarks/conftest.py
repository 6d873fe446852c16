"""The fuzz programs silence kilowait's log; the tests restore it."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def restored_log_level() -> Iterator[None]:
    """The level of kilowait's logger is the same after every test."""
    logger = logging.getLogger("kilowait")
    level = logger.level
    yield
    logger.setLevel(level)
