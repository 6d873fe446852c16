"""Descriptions of fields: every value that is not as described is named with its path."""

from __future__ import annotations

import pytest

from kilowait.errors import InputError
from kilowait.files.fields import Anything, Either, Flag, Items, Null, Number, Record, Text, Values, check_fields

FORMAT = Record(
    {"name": Text(), "kind": Text(("rule", "agent")), "jobs": Number(minimum=1, whole=True)},
    {
        "share": Either(Null(), Number(minimum=0, maximum=1)),
        "rows": Items(Record({"ok": Flag()})),
        "pair": Items(Number(), 2, 2),
        "means": Values(Number()),
        "notes": Anything(),
    },
)
VALID = {"name": "x", "kind": "rule", "jobs": 3}


def check(**changes):
    check_fields({**VALID, **changes}, FORMAT, "file.json", remedy="run it again")


def test_valid_values_pass():
    check(share=None, rows=[{"ok": True}, {"ok": False}], pair=[1, 2.5], means={"a": 1}, notes=[{}], other=1)
    check(share=0.5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": 3}, "name is 3; it must be text of at most 10,000 characters"),
        ({"name": None}, "name is null; it must be text of at most 10,000 characters"),
        ({"kind": "x"}, "kind is 'x'; it must be one of rule, agent"),
        ({"jobs": 0}, "jobs is 0; it must be a whole number, at least 1"),
        ({"jobs": 2.0}, "jobs is 2.0; it must be a whole number, at least 1"),
        ({"jobs": True}, "jobs is true; it must be a whole number, at least 1"),
        ({"jobs": 2**63}, "jobs is 9223372036854775808; it must be a whole number, at least 1"),
        ({"share": float("nan")}, "share is nan; it must be null, or a number, at least 0, at most 1"),
        ({"share": "x"}, "share is 'x'; it must be null, or a number, at least 0, at most 1"),
        ({"rows": {}}, "rows is an object; it must be a list"),
        ({"rows": [{"ok": True}, {"ok": 1}]}, r"rows\[1\].ok is 1; it must be true or false"),
        ({"rows": [{}]}, r"rows\[0\].ok is missing"),
        ({"rows": [[1]]}, r"rows\[0\] is a list of 1; it must be an object"),
        ({"pair": [1]}, "pair is a list of 1; it must be a list of 2"),
        ({"means": [1]}, "means is a list of 1; it must be an object"),
        ({"means": {"a\n": "x"}}, r"means.'a\\n' is 'x'; it must be a number"),
        ({"means": {"a": float("inf")}}, "means.a is inf; it must be a number"),
        ({"name": "x" * 10_001}, "name is 'x+\\.\\.\\.x+'; it must be text of at most 10,000 characters"),
    ],
)
def test_errors_name_the_file_the_field_and_the_value(changes, message):
    with pytest.raises(InputError, match=f"^file.json: {message}; run it again$"):
        check(**changes)


def test_missing_fields_are_named():
    with pytest.raises(InputError, match="^file.json: name is missing$"):
        check_fields({}, FORMAT, "file.json")
    with pytest.raises(InputError, match="^file.json: it is a list of 0; it must be an object$"):
        check_fields([], FORMAT, "file.json")


def test_errors_of_alternatives_name_the_innermost_field():
    either = Either(Null(), Items(Number()), Record({"low": Number()}))
    for value in (None, [1.0], {"low": 2}):
        check_fields(value, either, "file.json")
    with pytest.raises(InputError, match=r"^file.json: low is missing$"):
        check_fields({}, either, "file.json")
    with pytest.raises(InputError, match=r"^file.json: \[1\] is 'x'; it must be a number$"):
        check_fields([1, "x"], either, "file.json")


def test_long_values_are_shortened():
    with pytest.raises(InputError) as error:
        check_fields({"x" * 10_000: "y" * 10_000}, Values(Number()), "file.json")
    assert len(str(error.value)) < 200


def test_lists_can_be_required_to_ascend_and_to_have_one_length():
    curve = Record({"at": Items(Number(), ascending=True), "real": Items(Number())}, equally_long=("at", "real"))
    check_fields({"at": [1, 2], "real": [5, 5]}, curve, "file.json")
    with pytest.raises(InputError, match="^file.json: at is a list of 2; it must be a list of numbers in ascending"):
        check_fields({"at": [1, 1], "real": [5, 5]}, curve, "file.json")
    with pytest.raises(InputError, match="has lists of different lengths: at has 2 values, real has 1 values$"):
        check_fields({"at": [1, 2], "real": [5]}, curve, "file.json")
