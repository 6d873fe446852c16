"""Tokens and logins: where they are read from, and errors that do not show them."""

from __future__ import annotations

import pytest

from kilowait.errors import InputError, MeterError
from kilowait.telemetry.credentials import Login, read_login, read_token

SECRET = "s3cret-token"
URL = "http://127.0.0.1/login"


def test_token_is_read_from_file_or_environment(tmp_path, monkeypatch):
    monkeypatch.delenv("ELECTRICITYMAPS_TOKEN", raising=False)
    with pytest.raises(InputError, match="the environment variable ELECTRICITYMAPS_TOKEN has none; .*--token-file"):
        read_token(None)
    monkeypatch.setenv("ELECTRICITYMAPS_TOKEN", f" {SECRET}\n")
    assert read_token(None) == SECRET
    path = tmp_path / "token"
    with pytest.raises(InputError, match=r"cannot read the token in .*token: No such file"):
        read_token(path)
    path.write_text("from-file\n")
    assert read_token(path) == "from-file"
    path.write_text("two words")
    with pytest.raises(InputError, match="is not a token: it must be one word") as problem:
        read_token(path)
    assert "two words" not in str(problem.value)


def test_login_is_read_from_file_or_environment(tmp_path, monkeypatch):
    monkeypatch.delenv("WATTTIME_USER", raising=False)
    monkeypatch.setenv("WATTTIME_PASSWORD", SECRET)
    with pytest.raises(InputError, match="WATTTIME_USER and WATTTIME_PASSWORD has none; .*--token-file") as problem:
        read_login(None, URL)
    assert SECRET not in str(problem.value)
    monkeypatch.setenv("WATTTIME_USER", "ann")
    login = read_login(None, URL)
    assert (login.user, login.password) == ("ann", SECRET) and SECRET not in repr(login)
    assert login.basic() == "Basic YW5uOnMzY3JldC10b2tlbg=="
    path = tmp_path / "login"
    path.write_text("bob\nhunter2\n")
    assert (read_login(path, URL).user, read_login(path, URL).password) == ("bob", "hunter2")
    for text in ("bob", "bob:x\npassword", "", "a\nb\nc"):
        path.write_text(text)
        with pytest.raises(InputError, match="WattTime needs a user name and a password"):
            read_login(path, URL)


@pytest.mark.parametrize("response", [{}, [], {"token": 5}, {"token": "a\nb"}])
def test_response_without_token_is_an_error(response):
    with pytest.raises(MeterError, match="has no token; check the base URL"):
        Login(URL, "ann", SECRET).accept(response, 0.0)
