"""Where the logs lie, and what others computed on them."""

from __future__ import annotations

import gzip
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kilowait.errors import InputError
from kilowait.jobs import JobTable
from kilowait.traces import read_trace

__all__ = ["Sources"]


@dataclass(frozen=True)
class Sources:
    """Two folders: logs, and recorded results."""

    data: Path
    """Has swf/ in it."""
    oracles: Path

    @classmethod
    def find(cls, data: str | None = None, oracles: str | None = None) -> Sources:
        """The folders as named; else KILOWAIT_DATA and the folder oracles beside it."""
        named = data if data is not None else os.environ.get("KILOWAIT_DATA")
        if not named:
            raise InputError("no folder of real logs is named; give --data DIR or set KILOWAIT_DATA")
        folder = Path(named)
        if not (folder / "swf").is_dir():
            raise InputError(
                f"the folder of real logs is {folder}, but it has no swf/ in it; name the right one"
            )
        return cls(folder, folder.parent / "oracles" if oracles is None else Path(oracles))

    def log(self, name: str) -> Path:
        """The file of a log."""
        path = self.data / "swf" / name
        if not path.exists():
            raise InputError(f"{path} is not there; it is one of the logs of the Parallel Workloads Archive")
        return path

    def file(self, name: str, whence: str) -> Path:
        """Any other file, by its path in the folder of logs; `whence` says where one gets it."""
        path = self.data / name
        if not path.exists():
            raise InputError(f"{path} is not there; {whence}")
        return path

    def jobs(self, name: str) -> JobTable:
        """A log as kilowait reads it: jobs that never ran are left out."""
        return read_trace(self.log(name))

    def recorded(self, name: str) -> dict[str, Any]:
        """What others computed, from ``NAME.json.gz``."""
        path = self.oracles / f"{name}.json.gz"
        try:
            with gzip.open(path, "rt", encoding="utf-8") as file:
                found: dict[str, Any] = json.load(file)
        except FileNotFoundError:
            raise InputError(
                f"{path} is not there; name the folder of recorded results with --oracles"
            ) from None
        except (OSError, EOFError, ValueError) as problem:
            raise InputError(f"{path} cannot be read as packed JSON ({problem}); get it anew") from None
        return found
