from __future__ import annotations

import math
from dataclasses import FrozenInstanceError, replace

import pytest

from kilowait.errors import InputError
from kilowait.synth import BATCH_PARAMETERS, COMBINED_PARAMETERS, INTERACTIVE_PARAMETERS
from tests.synth import reference_lublin


@pytest.mark.parametrize(
    ("kind", "published"),
    [
        (COMBINED_PARAMETERS, reference_lublin.COMBINED),
        (BATCH_PARAMETERS, reference_lublin.BATCH),
        (INTERACTIVE_PARAMETERS, reference_lublin.INTERACTIVE),
    ],
)
def test_presets_are_the_published_values(kind, published):
    assert kind.serial_share == published["serial"]
    assert kind.power2_share == published["power2"]
    assert kind.size_low_log2 == published["low"]
    assert 7 - kind.size_high_gap_log2 == published["high"]
    assert published["high"] - kind.size_middle_gap_log2 == published["middle"]
    assert kind.size_lower_share == published["lower"]
    assert (kind.short_shape, kind.short_scale) == (published["a1"], published["b1"])
    assert (kind.long_shape, kind.long_scale) == (published["a2"], published["b2"])
    assert (kind.short_share_per_node, kind.short_share_base) == (published["pa"], published["pb"])
    assert (kind.gap_shape * kind.gap_rush_ratio, kind.gap_scale) == (published["aarr"], published["barr"])
    assert (kind.cycle_shape, kind.cycle_scale) == (published["anum"], published["bnum"])


def test_frozen():
    with pytest.raises(FrozenInstanceError):
        COMBINED_PARAMETERS.serial_share = 0.5


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": ""}, "has no name"),
        ({"serial_share": 1.5}, "serial_share of kind 'combined' is 1.5; a share must be from 0 to 1"),
        ({"serial_share": 0.5, "power2_share": 0.6}, "more than 1 together"),
        ({"long_shape": 0.0}, "long_shape of kind 'combined' is 0.0; it must be above 0"),
        ({"gap_scale": math.nan}, "gap_scale of kind 'combined' is nan"),
        ({"size_middle_gap_log2": -1.0}, "must be 0 or more"),
        ({"longest_gap_log": -2.0}, "must be above 0"),
    ],
)
def test_bad_values(change, message):
    with pytest.raises(InputError, match=message):
        replace(COMBINED_PARAMETERS, **change)
