"""Fuzzing of the locks of output folders: never two holders at once, no traceback, no hang.

    python -m benchmarks.fuzz_locks --cases 3000 --seed 0

Two kinds of cases. In races, several processes take and release the locks of the same few folders at the same time,
and some are killed at random moments, also while they take over a lock; every holder records itself in the folder and
looks for others. In damages, the lock file of a folder is garbage, something other than a file, or the lock of a
process that may or may not exist, here or on another host; the lock must be taken exactly if it is stale, and otherwise
the error must be a LockError. Cases run in child processes.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import os
import random
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kilowait.errors import LockError
from kilowait.files import STALE_S, output_lock, partial_path
from kilowait.files.lock_file import current_process

__all__ = ["DAMAGES", "fuzz", "main"]

_CHILD_LIMIT_S = 300.0
"""Time limit of the damages of one child process, seconds."""
_REPLY_LIMIT_S = 20.0
"""Time limit of one step of a racing process, seconds; waiting for a takeover takes up to 5."""
_RACERS = 4
_NO_PROCESS = 2**22 + 1
"""Process id above the largest one of Linux."""


# -- damages ---------------------------------------------------------------------------------------


def _record(rng: random.Random, **changes: Any) -> bytes:
    data = {"format": "kilowait lock", **current_process().to_dict(), "date": "2026-01-02", "token": "0", **changes}
    return json.dumps(data).encode()


def _age(lock: Path, age_s: float) -> None:
    at_s = time.time() - age_s
    os.utime(lock, (at_s, at_s))


def _garbage(rng: random.Random) -> bytes:
    valid = _record(rng)
    flipped = bytearray(valid)
    flipped[rng.randrange(20)] ^= rng.randrange(1, 128)  # in the name or the value of the format
    values: list[Any] = [None, True, 0, -1, 1.5, 2**80, "", "\x00", "x" * 1000, [], {}, "\x1b[2J"]
    name = rng.choice(["host", "pid", "user", "start", "boot", "date", "token", "format"])
    invalid = [value for value in values if name == "pid" or not isinstance(value, str) or value != ""]
    value = rng.choice(invalid)
    return rng.choice(
        [
            b"",
            valid[: rng.randrange(len(valid))],
            bytes(flipped),
            rng.randbytes(rng.randrange(2000)),
            rng.randbytes(300_000),
            b"[" * rng.randrange(1, 200_000),
            b"9" * rng.randrange(1, 8000),
            json.dumps(rng.choice([[], {}, 0, None, "text", [1] * 50, {"pid": {}}])).encode(),
            _record(rng, **{name: value}),
            valid + b"\n{}",
            valid + b" " * 20_000,
        ]
    )


def _old_or_new(lock: Path, rng: random.Random) -> bool:
    """Give the lock a random age; returns whether it is stale by its age."""
    stale = rng.random() < 0.5
    _age(lock, rng.uniform(STALE_S + 5, 1e7) if stale else rng.uniform(0, STALE_S - 60))
    if stale and rng.random() < 0.1:
        _age(lock, -rng.uniform(STALE_S + 60, 1e7))  # the clock was set back
    return stale


def _unreadable(lock: Path, rng: random.Random) -> bool:
    lock.write_bytes(_garbage(rng))
    return _old_or_new(lock, rng)


def _foreign_host(lock: Path, rng: random.Random) -> bool:
    change: dict[str, Any] = rng.choice(
        [{"host": "node7"}, {"namespace": "pid:[1]"}, {"boot": "1", "machine": rng.choice(["", "2"])}]
    )
    lock.write_bytes(_record(rng, pid=rng.choice([1, os.getpid(), _NO_PROCESS]), **change))
    return _old_or_new(lock, rng)


def _ended_process(lock: Path, rng: random.Random) -> bool:
    changes: list[dict[str, Any]] = [{"pid": _NO_PROCESS}, {"pid": 1, "start": "77777777"}, {"token": "own"}]
    if current_process().machine:  # otherwise another host of the same name may have had that boot
        changes.append({"boot": "before"})
    lock.write_bytes(_record(rng, **rng.choice(changes)))
    return _old_or_new(lock, rng) or True


def _running_process(lock: Path, rng: random.Random) -> bool:
    """The lock of the parent of this process, of any age."""
    text = Path(f"/proc/{os.getppid()}/stat").read_text()
    lock.write_bytes(_record(rng, pid=os.getppid(), start=text.rpartition(")")[2].split()[19]))
    return _old_or_new(lock, rng) and False


def _not_a_file(lock: Path, rng: random.Random) -> bool:
    kind = rng.choice(["folder", "fifo", "link", "dangling link", "loop", "device"])
    if kind == "folder":
        lock.mkdir()
    elif kind == "fifo":
        os.mkfifo(lock)
    elif kind == "link":
        (lock.parent / "elsewhere").write_bytes(_record(rng, pid=_NO_PROCESS))
        lock.symlink_to(lock.parent / "elsewhere")
    else:
        lock.symlink_to({"dangling link": "nowhere", "loop": lock.name, "device": "/dev/zero"}[kind])
    return False


def _stale_takeover(lock: Path, rng: random.Random) -> bool:
    """Processes were killed while they took over the lock."""
    lock.write_bytes(_record(rng, pid=_NO_PROCESS))
    for _ in range(rng.randrange(1, 4)):
        lock = lock.with_name(f"{lock.name}.takeover")
        lock.write_bytes(_record(rng, pid=_NO_PROCESS))
    return True


def _leftovers(lock: Path, rng: random.Random) -> bool:
    """Temporary files of killed processes, and names that only look like them."""
    for name in ("first", "second", lock.name):
        path = partial_path(lock.with_name(name), rng.choice(["part", "old"]))
        path.mkdir() if rng.random() < 0.5 else path.write_bytes(b"half")
    lock.with_name(".first.123.part").write_bytes(b"not ours")
    return True


DAMAGES: dict[str, tuple[Callable[[Path, random.Random], bool], float]] = {
    "unreadable": (_unreadable, 0.4),
    "foreign host": (_foreign_host, 0.2),
    "ended process": (_ended_process, 0.1),
    "running process": (_running_process, 0.1),
    "not a file": (_not_a_file, 0.1),
    "stale takeover": (_stale_takeover, 0.05),
    "leftovers": (_leftovers, 0.05),
}
"""Name to damage, which returns whether the lock can be taken, and its share of the cases."""


def _damage_cases(cases: int, seed: int) -> Counter[str]:
    """Damage a lock file and take the lock; raises AssertionError at the first violated requirement."""
    rng = random.Random(seed)
    logging.getLogger("kilowait").setLevel(logging.CRITICAL)
    counts: Counter[str] = Counter()
    names, shares = list(DAMAGES), [share for _, share in DAMAGES.values()]
    for case in range(cases):
        (name,) = rng.choices(names, shares)
        with tempfile.TemporaryDirectory() as root:
            target, inside = Path(root, "first"), rng.random() < 0.3
            if inside:
                target.mkdir()
            lock = target / ".kilowait-lock" if inside else target.with_name(".first.kilowait-lock")
            free = DAMAGES[name][0](lock, rng)
            before = {path: path.read_bytes() for path in Path(root).rglob("*") if path.is_file()}
            held, text = False, ""
            try:
                with output_lock(target, inside=inside):
                    held = True
                    with contextlib.suppress(LockError), output_lock(target, inside=inside, nested=False):
                        raise AssertionError(f"seed {seed}, case {case}: {name}: two holders")
            except LockError as error:
                text = str(error)
            after = {path: path.read_bytes() for path in Path(root).rglob("*") if path.is_file()}
            where = f"seed {seed}, case {case}: {name}: {before} {text}"
            assert held == free, where
            if held:
                assert not os.path.lexists(lock), where
                other = [path for path in before if path.name == ".first.123.part" or ".second." in path.name]
                assert all(path in after for path in other if not inside or path.name == ".first.123.part"), where
            else:
                assert before == after, where
                assert text.isprintable() and len(text) < 2000 and str(lock) in text, where
        counts[name] += 1
    return counts


# -- races -----------------------------------------------------------------------------------------


def _race(folder: str, seed: int) -> None:
    """Take and release locks until killed; one line on stdout for each attempt."""
    rng = random.Random(seed)
    logging.getLogger("kilowait").setLevel(logging.CRITICAL)
    while True:
        target = Path(folder, f"folder{rng.randrange(2)}")
        result = "refused"
        try:
            with output_lock(target, inside=target.name == "folder1"):
                result = "held"
                _enter_and_leave(target.with_name(f"{target.name}.holders"), rng)
        except LockError:
            time.sleep(rng.uniform(0, 0.002))
        sys.stdout.write(f"{result}\n")
        sys.stdout.flush()


def _enter_and_leave(holders: Path, rng: random.Random) -> None:
    """Record this process as a holder, and look for others that exist."""
    mine = holders / str(os.getpid())
    mine.touch()
    for other in holders.iterdir():
        if other != mine:
            # A killed holder was recorded too; it has ended before its lock was taken over.
            identity = Path(f"/proc/{other.name}/stat")
            with contextlib.suppress(OSError):
                state = identity.read_text().rpartition(")")[2].split()[0]
                if state not in ("Z", "X") and other.exists():
                    sys.stdout.write(f"two holders: {os.getpid()} and {other.name} of {holders.name}\n")
                    sys.stdout.flush()
            other.unlink(missing_ok=True)
    if rng.random() < 0.3:
        time.sleep(rng.uniform(0, 0.003))
    mine.unlink(missing_ok=True)


class _Racer:
    """One racing process."""

    def __init__(self, folder: str, seed: int) -> None:
        code = f"from benchmarks import fuzz_locks; fuzz_locks._race({folder!r}, {seed})"
        self.process = subprocess.Popen(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1
        )
        self.seen_s = time.monotonic()


def _race_cases(cases: int, seed: int) -> Counter[str]:
    """Let processes race for `cases` attempts, and kill some; raises AssertionError for two holders or a traceback."""
    rng = random.Random(seed)
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as root:
        for number in range(2):
            Path(root, f"folder{number}.holders").mkdir()
        racers = [_Racer(root, rng.randrange(2**32)) for _ in range(_RACERS)]
        next_kill_s = float("inf")  # not before they race
        try:
            while counts["held"] + counts["refused"] < cases:
                ready, _, _ = select.select(
                    [racer.process.stdout for racer in racers if racer.process.stdout], [], [], 0.005
                )
                for racer in racers:
                    if racer.process.stdout in ready:
                        line = racer.process.stdout.readline().strip()
                        problem = "" if line else (racer.process.communicate()[1] or "a racer ended")
                        assert line in ("held", "refused"), f"seed {seed}: {line}{problem}"
                        counts[line] += 1
                        next_kill_s = min(next_kill_s, time.monotonic() + rng.uniform(0, 0.3))
                        racer.seen_s = time.monotonic()
                    assert time.monotonic() - racer.seen_s < _REPLY_LIMIT_S, f"seed {seed}: a racer hangs"
                if time.monotonic() > next_kill_s:
                    place = rng.randrange(_RACERS)
                    racers[place].process.send_signal(signal.SIGKILL)
                    output, _ = racers[place].process.communicate()
                    assert "two holders" not in output, f"seed {seed}: {output}"
                    counts["killed"] += 1
                    racers[place] = _Racer(root, rng.randrange(2**32))
                    next_kill_s = time.monotonic() + rng.uniform(0.01, 0.3)
        finally:
            for racer in racers:
                racer.process.kill()
                racer.process.communicate()
    return counts


def fuzz(cases: int, seed: int) -> Counter[str]:
    """Run the cases, one half of each kind; returns how often each damage and each result of a race occurred.

    Raises AssertionError for two holders, a lock that was taken or refused wrongly, another error, or a hang.
    """
    run = f"fuzz_locks._damage_cases({cases // 2}, {seed})"
    code = f"import json; from benchmarks import fuzz_locks; print(json.dumps({run}))"
    child = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=_CHILD_LIMIT_S, check=False
    )
    if child.returncode != 0:
        raise AssertionError(f"seed {seed}: exit status {child.returncode}: {child.stderr[-2000:]}")
    return Counter(json.loads(child.stdout)) + _race_cases(cases - cases // 2, seed)


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=3000, help="damages, and attempts of racing processes, together")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    start_time = time.perf_counter()
    try:
        counts = fuzz(options.cases, options.seed)
    except (AssertionError, subprocess.TimeoutExpired) as problem:
        sys.stdout.write(f"found: {problem}\n")
        return 1
    sys.stdout.write(f"nothing found: {dict(counts)} in {time.perf_counter() - start_time:.0f} s\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
