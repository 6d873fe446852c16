"""The pip command named by errors about missing extras fits the way kilowait was installed."""

from __future__ import annotations

import json
from importlib import metadata

import pytest

from kilowait.errors import MissingExtraError, install_command

ORIGINS = {
    "index": (None, "pip install 'kilowait[learn]'"),
    "checkout": ({"url": "file:///src/k", "dir_info": {"editable": True}}, "pip install -e '/src/k[learn]'"),
    "folder": ({"url": "file:///src/k", "dir_info": {}}, "pip install '/src/k[learn]'"),
    "wheel": ({"url": "file:///k.whl", "archive_info": {}}, "pip install '/k.whl[learn]'"),
    "archive": (
        {"url": "https://x.org/k.whl", "archive_info": {}},
        "pip install 'kilowait[learn] @ https://x.org/k.whl'",
    ),
    "git": (
        {"url": "https://x.org/k.git", "vcs_info": {"vcs": "git", "commit_id": "1"}},
        "pip install 'kilowait[learn] @ git+https://x.org/k.git'",
    ),
    "quote": ({"url": "file:///it%27s", "dir_info": {"editable": True}}, """pip install -e '/it'"'"'s[learn]'"""),
    "damaged": ([1], "pip install 'kilowait[learn]'"),
}


@pytest.mark.parametrize("name", ORIGINS)
def test_install_command(monkeypatch, name):
    origin, expected = ORIGINS[name]

    class Installed:
        def read_text(self, file: str) -> str | None:
            assert file == "direct_url.json"
            return None if origin is None else json.dumps(origin)

    monkeypatch.setattr(metadata, "distribution", lambda _: Installed())
    assert install_command("learn") == expected
    assert str(MissingExtraError("wandb", None)) == "this needs wandb, which is not installed: pip install wandb"
    assert str(MissingExtraError("torch", "learn")) == f"this needs torch, which is not installed: {expected}"


def test_kilowait_that_is_not_installed(monkeypatch):
    def missing(name: str) -> None:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", missing)
    assert install_command("learn") == "pip install 'kilowait[learn]'"
