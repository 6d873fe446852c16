"""Feature values as text."""

from __future__ import annotations

import math

import pytest

from kilowait.errors import UnknownNameError
from kilowait.predict.explanation import feature_value_text
from kilowait.predict.features import DETAILED_KINDS, KINDS, MEANINGS, STATISTICS


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("anchor_share", math.log(0.25), "25 % of the request"),
        ("nodes", 0.0, "1 node"),
        ("hour", 13.5, "13:30"),
        ("round", 0.5, "whole ten minutes"),
        ("same_request", 1.0, "yes"),
        ("user_count", math.log1p(1200), "1,200 jobs"),
        ("user_same_last", math.log(2.0), "2 × the anchor"),
        ("user_elapsed", -1.0, "not running"),
        ("user_since", math.log1p(7200), "2 h 0 min"),
        ("user_inverse", 0.25, "0.25"),
        ("queue", 3.0, "3"),
    ],
)
def test_text_of_values(name, value, text):
    assert feature_value_text(name, value) == text


def test_every_feature_has_a_text():
    names = [*MEANINGS, *(f"{kind}_{statistic}" for kind in (*KINDS, *DETAILED_KINDS) for statistic in STATISTICS)]
    for name in names:
        assert feature_value_text(name, 1.0) and feature_value_text(name, math.nan) == "not known"
    with pytest.raises(UnknownNameError, match="unknown feature 'colour'"):
        feature_value_text("colour", 1.0)
