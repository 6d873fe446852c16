"""Paths of the real logs and of recorded reference results."""

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
    """The folders of real logs and of recorded reference results."""

    data: Path
    """Contains swf/."""
    oracles: Path

    @classmethod
    def find(cls, data: str | None = None, oracles: str | None = None) -> Sources:
        """The given folders; by default KILOWAIT_DATA and the folder oracles beside it."""
        data_folder = data if data is not None else os.environ.get("KILOWAIT_DATA")
        if not data_folder:
            raise InputError("the folder of real logs is unknown; give --data DIR or set KILOWAIT_DATA")
        folder = Path(data_folder)
        if not (folder / "swf").is_dir():
            raise InputError(f"the folder of real logs is {folder}, but it contains no swf/; name the right one")
        return cls(folder, folder.parent / "oracles" if oracles is None else Path(oracles))

    def log(self, name: str) -> Path:
        """The path of a log."""
        path = self.data / "swf" / name
        if not path.exists():
            raise InputError(f"{path} does not exist; it is one of the logs of the Parallel Workloads Archive")
        return path

    def file(self, name: str, source_hint: str) -> Path:
        """The path of any other file in the folder of logs; `source_hint` says where to get it."""
        path = self.data / name
        if not path.exists():
            raise InputError(f"{path} does not exist; {source_hint}")
        return path

    def jobs(self, name: str) -> JobTable:
        """Read a log with kilowait; jobs that never ran are left out."""
        return read_trace(self.log(name))

    def recorded(self, name: str) -> dict[str, Any]:
        """Recorded reference results from ``NAME.json.gz``."""
        path = self.oracles / f"{name}.json.gz"
        try:
            with gzip.open(path, "rt", encoding="utf-8") as file:
                results: dict[str, Any] = json.load(file)
        except FileNotFoundError:
            raise InputError(f"{path} does not exist; name the folder of recorded results with --oracles") from None
        except (OSError, EOFError, ValueError) as error:
            raise InputError(f"{path} cannot be read as compressed JSON ({error}); download it again") from None
        return results
