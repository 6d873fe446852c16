"""Finished cells of a comparison, kept while it is not whole.

A cell is kept under a name made from everything it depends on (jobs, machine, rule, window, settings, the simulator's
own sources), so that a comparison that was interrupted goes on where it stopped, and one that was changed runs what
is new in it.
"""

from __future__ import annotations

import hashlib
import json
import os
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
from kilowait.experiments.run_matrix import Cell, ComparisonCase
from kilowait.experiments.scenario import AGENT, PREFER, agent_and_preference
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
    """Finished cells, by content: in a folder beside the one the comparison is to be written to, and in that itself.

    The folder beside it is there only while a comparison is not finished.
    """

    def __init__(self, out: Path, cases: Sequence[ComparisonCase], policies: Sequence[PolicyConfig]) -> None:
        self.folder = out.with_name(f"{out.name}.cells")
        self.found = 0
        """Cells that did not have to be run."""
        self._cases, self._contenders = cases, policies
        self._digests = [case.digest for case in cases]
        self._policies = [_policy_digest(contender.policy) for contender in policies]
        self._earlier: dict[str, tuple[Comparison, int, int]] = {}
        if (out / "manifest.json").exists():
            self._earlier = _cells_of(load_comparison(out))

    def key(self, cell: Cell) -> str:
        """A name made from everything the cell depends on."""
        case, contender, window = cell
        windows, who = self._cases[case].windows, self._contenders[contender]
        place = (int(windows.first[window]), int(windows.size[window]), int(windows.warmup[window]))
        what = [self._digests[case], place, self._policies[contender], str(who.backfill), who.kind, _code()]
        meter = self._cases[case].meter
        by_energy = self._cases[case].recorded.get("gpu", {}).get("gpu_type_order") == "least-energy"
        if meter is not None and (who.power_controls != "none" or by_energy):
            what += [who.power_controls, meter.digest]
        return hashlib.sha256(json.dumps(what).encode()).hexdigest()[:32]

    def load(self, cell: Cell) -> ExecutionLog | None:
        """The log of a cell that was finished before; None where there is none that can be read."""
        key = self.key(cell)
        jobs = self._cases[cell[0]].windows[cell[2]].jobs
        if key in self._earlier:
            contest, contender, window = self._earlier[key]
            self.found += 1
            return replace(contest.logs(contender, window), jobs_table=jobs)
        try:
            with (self.folder / f"{key}.npz").open("rb") as file, np.load(file) as held:
                columns = {name: held[name] for name in _COLUMNS}
                note = json.loads(str(held["note"]))
                states = NodeStates(*(held[f"states_{name}"] for name in _STATES)) if note["states"] else None
                pieces = (
                    Allocations(*(held[f"pieces_{name}"] for name in _PIECES)) if note["pieces"] else None
                )
        except (OSError, ValueError, KeyError, EOFError, BadZipFile):
            return None
        self.found += 1
        return ExecutionLog(
            jobs_table=jobs,
            groups=tuple(note["groups"]),
            run=note["run"],
            states=states,
            pieces=pieces,
            **columns,
        )

    def save(self, cell: Cell, log: ExecutionLog) -> None:
        """Keep a finished cell; it is there whole or not at all."""
        path = self.folder / f"{self.key(cell)}.npz"
        part = path.with_suffix(f".{os.getpid()}.part")
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
            self.folder.mkdir(parents=True, exist_ok=True)
            with _undisturbed():
                with part.open("wb") as file:
                    np.savez(file, note=np.array(note), **columns)
                part.replace(path)
        except OSError as problem:
            part.unlink(missing_ok=True)
            raise InputError(
                f"cannot keep a finished cell in {path}: {problem.strerror or problem}"
            ) from None

    def clear(self) -> None:
        """The comparison is written: what was kept on the way is not needed any more."""
        shutil.rmtree(self.folder, ignore_errors=True)


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Ctrl-C waits until a file is written: a zip file that is interrupted fails with an error of its own."""
    if threading.current_thread() is not threading.main_thread():  # where nobody is interrupted
        yield
        return
    came: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if came:
        raise KeyboardInterrupt


def _cells_of(earlier: ComparisonFolder) -> dict[str, tuple[Comparison, int, int]]:
    places = [
        (contest, contender, window)
        for contest in earlier.comparisons
        for contender in range(len(contest.policies))
        for window in range(len(contest.windows))
    ]
    return dict(zip(earlier.cells, places, strict=True))


def _policy_digest(policy: str) -> str:
    """The rule as written; of an agent what its file holds instead of its name."""
    if not policy.startswith(AGENT):
        return policy
    whole, placement = policy_and_placement(policy)
    path, preference = agent_and_preference(whole)
    told = PREFER + preference if preference else ""
    try:
        return f"{AGENT}{hashlib.sha256(Path(path).read_bytes()).hexdigest()}{told}@{placement or ''}"
    except OSError:
        return policy  # load_agent has the words for what is wrong with it


@cache
def _code() -> str:
    """Of the sources a simulation depends on: a cell of another version is run again."""
    found = hashlib.sha256(np.__version__.encode())
    root = Path(kilowait.__file__).parent
    for room in ("engine", "energy", "policies", "agents", "jobs", "cluster"):
        for source in sorted((root / room).rglob("*.py")):
            found.update(source.read_bytes())
    return found.hexdigest()
