"""Tests of the modules errors, units and rng."""

from __future__ import annotations

import math
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kilowait import errors
from kilowait.errors import InputError, KilowaitError, MissingExtraError, UnknownNameError, install_command
from kilowait.rng import stream
from kilowait.units import format_duration, parse_duration

# -- errors ---------------------------------------------------------------------------------------


def test_errors_form_one_tree():
    classes = {name: value for name, value in vars(errors).items() if isinstance(value, type)}
    names = [name for name, value in classes.items() if value.__module__ == errors.__name__]
    assert len(names) > 5
    for name in names:
        assert issubclass(getattr(errors, name), KilowaitError)
        assert name in errors.__doc__, "the tree in the docstring shows every exception"


@pytest.mark.parametrize(
    ("error", "builtin"),
    [
        (errors.InputError, ValueError),
        (errors.TraceError, errors.InputError),
        (errors.TableError, errors.InputError),
        (errors.ClusterError, errors.InputError),
        (errors.UnknownNameError, LookupError),
        (errors.MissingExtraError, ImportError),
    ],
)
def test_errors_derive_from_builtins(error, builtin):
    assert issubclass(error, builtin)


def test_unknown_name_suggests_the_nearest():
    message = str(UnknownNameError("cluster preset", "Polari", ["mira", "polaris"]))
    assert message == "unknown cluster preset 'Polari'; did you mean 'polaris'? known: mira, polaris"


def test_unknown_name_without_a_suggestion():
    assert str(UnknownNameError("policy", "zzz", ["fcfs"])) == "unknown policy 'zzz'; known: fcfs"


@pytest.mark.parametrize("error", [UnknownNameError("policy", "sfj", ["sjf"]), MissingExtraError("polars", "polars")])
def test_errors_can_be_pickled(error):
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert str(copy) == str(error)


def test_missing_extra_names_the_command():
    assert install_command("report") in str(MissingExtraError("matplotlib", "report"))


# -- units ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0),
        ("45", 45),
        ("1.5", 1.5),
        (" 90m ", 5400),
        ("30s", 30),
        ("1.5h", 5400),
        ("3d", 3 * 86400),
        ("1w", 7 * 86400),
        ("10:30", 630),
        ("1:00:00", 3600),
        ("00:00:01.5", 1.5),
        ("2-12", 2.5 * 86400),
        ("2-12:30", 2.5 * 86400 + 1800),
        ("2-12:30:05", 2.5 * 86400 + 1805),
        ("100:00:00", 360000),
    ],
)
def test_durations_are_parsed(text, seconds):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text",
    ["", " ", "soon", "m", "1:2:3:4", "1-2-3", "nan", "inf", "nanm", "infs", "1e999d", "5x", "UNLIMITED", "-"]
    + ["9" * 400 + ":00", "9" * 5000, "9" * 5000 + ":00"],
)
def test_invalid_durations_are_refused(text):
    with pytest.raises(InputError, match="is not a span of time; write seconds, 90m"):
        parse_duration(text)


@given(st.text(max_size=12))
def test_parsing_any_text_is_finite_or_an_input_error(text):
    try:
        assert math.isfinite(parse_duration(text))
    except InputError:
        pass


@given(st.integers(0, 10**6), st.integers(0, 23), st.integers(0, 59), st.integers(0, 59))
def test_slurm_durations(days, hours, minutes, seconds):
    text = f"{days}-{hours:02d}:{minutes:02d}:{seconds:02d}"
    assert parse_duration(text) == ((days * 24 + hours) * 60 + minutes) * 60 + seconds


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (60, "1 min"), (3599, "59 min"), (3600, "1 h 0 min"), (172800, "2 d 0 h"), (-90, "-1 min")]
    + [(math.inf, "-"), (math.nan, "-"), (0.123456, "0.123 s")],
)
def test_durations_are_formatted(seconds, text):
    assert format_duration(seconds) == text


# -- rng ------------------------------------------------------------------------------------------

PINNED = [2431020648727340370, 2421477808131059748]


def draws(seed, name):
    return stream(seed, name).integers(2**62, size=8).tolist()


def test_streams_repeat_and_differ():
    assert draws(0, "arrivals") == draws(0, "arrivals")
    first_draws = [draws(seed, name)[0] for seed in (0, 1, 2**40) for name in ("arrivals", "sizes", "")]
    assert len(set(first_draws)) == len(first_draws)


def test_streams_are_platform_independent():
    """Pinned, because results published with a seed must stay reproducible."""
    assert draws(42, "arrivals")[:2] == draws(np.int64(42), "arrivals")[:2] == PINNED


def test_zero_is_a_seed_and_minus_one_is_not():
    assert isinstance(stream(0, "x"), np.random.Generator)
    with pytest.raises(InputError, match="the seed is -1; it must be 0 or more"):
        stream(-1, "x")
