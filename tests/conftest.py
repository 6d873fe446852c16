"""What all tests share: where the real data lie, and a Hypothesis that repeats itself."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# The same examples in every run: a failure in one place is a failure everywhere. To look for new ones:
# HYPOTHESIS_PROFILE=explore pytest ...
settings.register_profile(
    "repeat", derandomize=True, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("explore", deadline=None, max_examples=2000, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeat"))


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of real traces named by KILOWAIT_DATA; without it the test is skipped, saying so."""
    named = os.environ.get("KILOWAIT_DATA")
    if not named:
        pytest.skip("KILOWAIT_DATA does not name the folder of real traces")
    folder = Path(named)
    if not folder.is_dir():
        pytest.fail(f"KILOWAIT_DATA names {folder}, which is not a folder")
    return folder


@pytest.fixture(scope="session")
def project() -> Path:
    """The root of the checkout."""
    return Path(__file__).resolve().parents[1]
