"""Expansion of Slurm host lists."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kilowait.errors import InputError
from kilowait.telemetry.labels import expand_hosts


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("n1", ("n1",)),
        ("n1,n2", ("n1", "n2")),
        ("n[1-3]", ("n1", "n2", "n3")),
        ("n[098-101]", ("n098", "n099", "n100", "n101")),
        ("a[1,3-4]b,c", ("a1b", "a3b", "a4b", "c")),
        ("r[1-2]n[0-1]", ("r1n0", "r1n1", "r2n0", "r2n1")),
        ("n[1-2],n2", ("n1", "n2")),
        ("gpu-node.example", ("gpu-node.example",)),
    ],
)
def test_lists_of_slurm(text, names):
    assert expand_hosts(text) == names


@given(st.sets(st.integers(0, 999), min_size=1))
def test_expansion_is_the_inverse_of_the_list(numbers):
    text = f"n[{','.join(f'{number:03}' for number in sorted(numbers))}]"
    assert expand_hosts(text) == tuple(f"n{number:03}" for number in sorted(numbers))


@pytest.mark.parametrize("text", ["n[1", "n1]", "n[1-]", "n[b]", "n[3-1]", "n[[1]]", "a,,b", "n[]"])
def test_invalid_lists_are_errors(text):
    with pytest.raises(InputError, match="is not a list of nodes"):
        expand_hosts(text)


@pytest.mark.parametrize("text", ["n[0-99999999999]", "n[1-2000]x[1-2000]"])
def test_too_long_lists_are_errors(text):
    with pytest.raises(InputError, match="stands for more than 1,000,000 nodes"):
        expand_hosts(text)
