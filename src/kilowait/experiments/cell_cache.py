"""Cache of the finished cells of a comparison, so that an interrupted comparison can be resumed.

The key of a cell is a digest of everything it depends on: jobs, cluster, policy, window, settings and the source code
of the simulator. A changed comparison therefore runs only the cells that are new.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

import kilowait
from kilowait.errors import InputError
from kilowait.evaluation.comparison import Comparison, PolicyConfig
from kilowait.evaluation.storage import ComparisonFolder, load_comparison
from kilowait.experiments.policy_configs import policy_and_placement
from kilowait.experiments.policy_names import policy_digest
from kilowait.experiments.run_matrix import Cell, ComparisonCase, all_cells
from kilowait.files import atomic_file, remove_leftovers
from kilowait.jobs import ExecutionLog
from kilowait.jobs.execution_log import Allocations, NodeStates

__all__ = ["FolderCellCache"]

_COLUMNS = (
    "job", "start_s", "end_s", "group", "level", "outcome", "eligible_s", "job_outcome", "capacity_s",
    "capacity_nodes",
)  # fmt: skip
_STATES = ("time_s", "group", "shutting_down", "asleep", "waking")
_PIECES = ("segment", "node", "gpus", "gpu_milli", "count", "work_s", "lost_s", "node_group")


class FolderCellCache:
    """Finished cells by digest, in the folder OUT.cells and in an earlier comparison in the folder OUT.

    OUT.cells exists only while a comparison is unfinished.
    """

    def __init__(self, out: Path, cases: Sequence[ComparisonCase], policies: Sequence[PolicyConfig]) -> None:
        self.folder = out.with_name(f"{out.name}.cells")
        self.hits = 0
        """Cells that were read instead of run."""
        self._cases, self._configs = cases, policies
        self._digests = [case.digest for case in cases]
        self._policies = [_policy_digest(config.policy) for config in policies]
        self._earlier: dict[str, tuple[Comparison, int, int]] = {}
        remove_leftovers(self.folder)
        if (out / "manifest.json").exists():
            self._earlier = _cells_by_key(load_comparison(out))

    def key(self, cell: Cell) -> str:
        """The digest of everything the cell depends on."""
        case, policy, window = cell
        windows, config = self._cases[case].windows, self._configs[policy]
        rows = (int(windows.first[window]), int(windows.size[window]), int(windows.warmup[window]))
        parts = [self._digests[case], rows, self._policies[policy], str(config.backfill), config.kind, _code_digest()]
        context = self._cases[case].power_context
        gpu_options = self._cases[case].settings_dict.get("gpu", {})
        needs_power = config.power_controls != "none" or gpu_options.get("gpu_type_order") == "least-energy"
        if context is not None and needs_power:
            parts += [config.power_controls, context.digest]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]

    def load(self, cell: Cell) -> ExecutionLog | None:
        """The log of a finished cell; None if there is none, or it cannot be read."""
        key = self.key(cell)
        jobs = self._cases[cell[0]].windows[cell[2]].jobs
        if key in self._earlier:
            comparison, policy, window = self._earlier[key]
            self.hits += 1
            return replace(comparison.logs(policy, window), jobs_table=jobs)
        try:
            with self._path(key).open("rb") as file, np.load(file) as arrays:
                columns = {name: arrays[name] for name in _COLUMNS}
                note = json.loads(str(arrays["note"]))
                states = pieces = None
                if note["states"]:
                    states = NodeStates(*(arrays[f"states_{name}"] for name in _STATES))
                if note["pieces"]:
                    pieces = Allocations(*(arrays[f"pieces_{name}"] for name in _PIECES))
        except (OSError, ValueError, KeyError, EOFError, BadZipFile):
            return None
        self.hits += 1
        return ExecutionLog(
            jobs_table=jobs, groups=tuple(note["groups"]), run=note["run"], states=states, pieces=pieces, **columns
        )

    def save(self, cell: Cell, log: ExecutionLog) -> None:
        """Write a finished cell; the file is replaced atomically."""
        path = self._path(self.key(cell))
        note = json.dumps(
            {
                "groups": list(log.groups),
                "run": dict(log.run),
                "states": log.states is not None,
                "pieces": log.pieces is not None,
            }
        )
        columns = {name: getattr(log, name) for name in _COLUMNS}
        if log.states is not None:
            columns |= {f"states_{name}": getattr(log.states, name) for name in _STATES}
        if log.pieces is not None:
            columns |= {f"pieces_{name}": getattr(log.pieces, name) for name in _PIECES}
        try:
            with _delay_interrupts(), atomic_file(path, parents=True) as part, part.open("wb") as file:
                np.savez(file, note=np.array(note), **columns)
        except OSError as problem:
            raise InputError(f"cannot write the finished cell {path}: {problem.strerror or problem}") from None

    def check_unused(self, *, force: bool = False) -> None:
        """Raise an error if the folder has finished cells of another comparison, which `clear` would remove.

        Cells of another version of the simulator do not count: nothing can use them. With `force` they are removed.
        """
        if force:
            return
        used = {self._path(self.key(cell)).name for cell in all_cells(self._cases, self._configs)}
        found = {path.name for path in self.folder.glob(f"{_code_digest()[:8]}-*.npz")}
        if unused := len(found - used):
            raise InputError(
                f"{self.folder} contains {unused:,} finished {'run' if unused == 1 else 'runs'} of an interrupted "
                "comparison with other jobs, policies or settings, which would be removed: repeat that comparison to "
                "finish it, name another folder, or discard them with --force"
            )

    def _path(self, key: str) -> Path:
        """The file of a cell; its name begins with the version of the simulator."""
        return self.folder / f"{_code_digest()[:8]}-{key}.npz"

    def clear(self) -> None:
        """Remove the folder of cells, after the comparison was written."""
        shutil.rmtree(self.folder, ignore_errors=True)


@contextmanager
def _delay_interrupts() -> Iterator[None]:
    """Delay Ctrl-C until a file is written: numpy raises another error if writing a zip file is interrupted."""
    if threading.current_thread() is not threading.main_thread():  # only the main thread is interrupted
        yield
        return
    received: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: received.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if received:
        raise KeyboardInterrupt


def _cells_by_key(earlier: ComparisonFolder) -> dict[str, tuple[Comparison, int, int]]:
    cells = [
        (comparison, policy, window)
        for comparison in earlier.comparisons
        for policy in range(len(comparison.policies))
        for window in range(len(comparison.windows))
    ]
    if len(earlier.cells) not in (0, len(cells)):
        raise InputError(
            f"{earlier.path / 'cases.json'} names {len(earlier.cells)} cells, and the comparison has {len(cells)}; "
            "name another folder"
        )
    return dict(zip(earlier.cells, cells, strict=False))


def _policy_digest(policy: str) -> str:
    """The digest of a policy with its placement."""
    name, placement = policy_and_placement(policy)
    return f"{policy_digest(name)}@{placement or ''}"


@cache
def _code_digest() -> str:
    """Digest of the source code of the simulator: cells of another version are run again."""
    digest = hashlib.sha256(np.__version__.encode())
    root = Path(kilowait.__file__).parent
    for package in ("engine", "energy", "policies", "agents", "jobs", "cluster"):
        for source in sorted((root / package).rglob("*.py")):
            digest.update(source.read_bytes())
    return digest.hexdigest()
