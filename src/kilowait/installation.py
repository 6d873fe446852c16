"""The pip command that adds an extra to the kilowait that is running: from the package index, or from a checkout."""

from __future__ import annotations

from typing import Any


def install_command(extra: str) -> str:
    """The pip command that installs an extra (``learn``) the way kilowait was installed.

    pip records in ``direct_url.json`` that a distribution came from a folder, an archive or a repository: there
    ``pip install kilowait`` would fetch another kilowait.

    >>> "learn" in install_command("learn")
    True
    """
    import json
    from importlib import metadata

    try:
        text = metadata.distribution("kilowait").read_text("direct_url.json")
        origin = json.loads(text) if text else {}
    except (metadata.PackageNotFoundError, OSError, ValueError):
        origin = {}
    return _command(extra, origin if isinstance(origin, dict) else {})


def _command(extra: str, origin: dict[str, Any]) -> str:
    """The command for the content of direct_url.json.

    >>> _command("learn", {})
    "pip install 'kilowait[learn]'"
    >>> _command("learn", {"url": "file:///src/my%20kilowait", "dir_info": {"editable": True}})
    "pip install -e '/src/my kilowait[learn]'"
    >>> _command("learn", {"url": "https://example.org/k.git", "vcs_info": {"vcs": "git", "requested_revision": "v1"}})
    "pip install 'kilowait[learn] @ git+https://example.org/k.git@v1'"
    """
    import shlex
    from urllib.parse import unquote, urlsplit

    address = str(origin.get("url", ""))
    vcs, folder = origin.get("vcs_info"), origin.get("dir_info")
    if isinstance(vcs, dict) and address:
        revision = vcs.get("requested_revision")
        address = f"{vcs.get('vcs', 'git')}+{address}" + (f"@{revision}" if revision else "")
        return f"pip install {shlex.quote(f'kilowait[{extra}] @ {address}')}"
    parts = urlsplit(address)
    if parts.scheme == "file" and parts.path:
        editable = "-e " if isinstance(folder, dict) and folder.get("editable") else ""
        return f"pip install {editable}{shlex.quote(f'{unquote(parts.path)}[{extra}]')}"
    if address:
        return f"pip install {shlex.quote(f'kilowait[{extra}] @ {address}')}"
    return f"pip install {shlex.quote(f'kilowait[{extra}]')}"
