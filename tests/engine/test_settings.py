"""Settings and the errors of invalid values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kilowait.engine.settings import UNLIMITED, Settings
from kilowait.errors import InputError, KilowaitError, UnknownNameError


@pytest.mark.parametrize(
    ("backfill", "depth"),
    [("none", 0), ("easy", 1), ("conservative", UNLIMITED), (0, 0), (3, 3), (np.int64(2), 2), (2**70, UNLIMITED)],
)
def test_reservation_depth_of_backfill_modes(backfill: Any, depth: int) -> None:
    assert Settings(backfill).depth == depth


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"backfill": "esay"}, "unknown backfill mode 'esay'; did you mean 'easy'? known: conservative, easy, none"),
        ({"at_limit": "kil"}, "unknown at_limit rule 'kil'; did you mean 'kill'? known: extend, kill"),
        ({"schedule_per": "events"}, "unknown schedule_per rule 'events'; did you mean 'event'? known: event, instant"),
        ({"placement": "frist"}, "unknown placement rule 'frist'; did you mean 'first'? known: balance, first"),
        ({"on_oversized": "drp"}, "unknown on_oversized rule 'drp'; did you mean 'drop'? known: drop, error"),
        ({"overrun": "step"}, "unknown overrun rule 'step'; did you mean 'steps'? known: double, quantile, steps"),
        ({"at_limit": None}, "unknown at_limit rule 'None'; known: extend, kill"),
    ],
)
def test_unknown_setting_value_error_suggests_the_nearest(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(UnknownNameError) as caught:
        Settings(**wrong)
    assert str(caught.value) == message


@pytest.mark.parametrize("depth", [-1, True, False, -0.5])
def test_invalid_depth_is_an_error(depth: Any) -> None:
    with pytest.raises(InputError, match="backfill depth is .*; give none, easy, conservative or a whole number >= 0"):
        Settings(depth)


@pytest.mark.parametrize("depth", [1.5, float("nan"), None, [1]])
def test_depth_must_be_an_integer(depth: Any) -> None:
    with pytest.raises(Exception) as caught:
        Settings(depth).depth  # noqa: B018
    assert isinstance(caught.value, KilowaitError)
