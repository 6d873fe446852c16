"""JSON, TOML and regular files: whatever they hold, the error is in words, in bounded time and memory."""

from __future__ import annotations

import os

import pytest

from kilowait.errors import InputError
from kilowait.files.documents import MAX_DEPTH, parse_json, read_json_object, read_toml
from kilowait.files.fields import Number, Record
from kilowait.files.regular_file import member_path, open_regular, read_bytes, sha256


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "Expecting value"),
        (b'{"a": ', "Expecting value"),
        (b"[NaN]", "NaN is not a JSON number"),
        (b"[-Infinity]", "-Infinity is not a JSON number"),
        (b"[1e400]", "the number 1e400 is too large"),
        (b"[" + b"9" * 10**6 + b"]", "a number has 1,000,000 digits"),
        (b"[" * 10**6, f"more than {MAX_DEPTH} nested"),
        (b'{"a":' * 1000 + b"1" + b"}" * 1000, f"more than {MAX_DEPTH} nested"),
        (b'["\xff"]', "can't decode byte 0xff"),
        (b'["\\ud800"]', "surrogates not allowed"),
        (b"\xef\xbb\xbf{}", "BOM"),
    ],
)
def test_json_that_cannot_be_used_is_refused(text, message):
    with pytest.raises(InputError, match=f"^x.json is damaged: .*{message}.*; run it again$"):
        parse_json(text, "x.json", remedy="run it again")


def test_json_is_parsed():
    text = b'{"a": [1, -2.5, 1e3, true, null], "b": "[[[ \\" {{{ \\ud83d\\ude00", "c": {}}'
    expected = {"a": [1, -2.5, 1000.0, True, None], "b": '[[[ " {{{ \U0001f600', "c": {}}
    assert parse_json(text, "x.json") == expected
    assert parse_json(b"[" * MAX_DEPTH + b"]" * MAX_DEPTH, "x.json")
    assert parse_json(b'"' + b"[" * 1000 + b'"', "x.json")


def test_json_objects_are_read_and_checked(tmp_path):
    path = tmp_path / "x.json"
    path.write_text('{"a": 1}')
    assert read_json_object(path, Record({"a": Number()})) == {"a": 1}
    with pytest.raises(InputError, match=f"^{path}: b is missing; fit it again$"):
        read_json_object(path, Record({"b": Number()}), remedy="fit it again")
    path.write_text("[1]")
    with pytest.raises(InputError, match=f"^{path} does not contain a JSON object$"):
        read_json_object(path)
    with pytest.raises(FileNotFoundError):
        read_json_object(tmp_path / "y.json")


@pytest.mark.parametrize(
    "text",
    [
        "x = ",
        "x = " + "[" * 10**6,
        "x = " + "{a=" * 1000,
        "x = " + "9" * 10**5,
        "a." * 10**6 + "b = 1",
        "[" + "a . " * 1000 + "b]",
        "'a'." * 1000 + "b = 1",
        "x = '\udc80'",
    ],
)
def test_toml_that_cannot_be_used_is_refused(tmp_path, text):
    path = tmp_path / "x.toml"
    path.write_text(text, errors="surrogateescape")
    with pytest.raises(InputError, match=f"^{path} is damaged: .*; run it again$"):
        read_toml(path, remedy="run it again")


def test_toml_is_parsed(tmp_path):
    path = tmp_path / "x.toml"
    path.write_text(
        'x = [0.5, 0.25]\ny = "' + "a." * 200 + "[" * 200 + "\"\nz = '" + "b." * 200 + "'\n" + "[a.b.c]\nd=1"
    )
    data = read_toml(path)
    assert (data["x"], data["a"], len(data["y"])) == ([0.5, 0.25], {"b": {"c": {"d": 1}}}, 600)


def test_only_regular_files_are_opened(tmp_path):
    file, link, pipe = tmp_path / "file", tmp_path / "link", tmp_path / "pipe"
    file.write_text("x")
    link.symlink_to(file)
    os.mkfifo(pipe)
    with open_regular(file) as opened:
        assert opened.read() == b"x"
    for path, kind in ((link, "a link"), (pipe, "a pipe"), (tmp_path, "a folder"), ("/dev/zero", "a device")):
        with pytest.raises(InputError, match=f"^{path} is {kind}; a regular file is needed$"):
            sha256(path)
    with pytest.raises(FileNotFoundError):
        open_regular(tmp_path / "missing")


def test_large_files_are_not_read(tmp_path):
    path = tmp_path / "large"
    with path.open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(InputError, match=f"^{path} has 1,099,511,627,776 bytes; such a file has at most 1,000$"):
        read_bytes(path, max_bytes=1000)


@pytest.mark.parametrize("name", ["", ".", "..", "/etc/passwd", "../x", "a/b", "a\\b", "a\0b", "a\nb", "\udc80"])
def test_names_of_files_elsewhere_are_refused(name):
    with pytest.raises(InputError, match="is not the name of a file in folder"):
        member_path("folder", name)
