"""Locks of output folders: one holder at a time, stale locks, release, children, leftovers."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from kilowait.errors import LockError
from kilowait.files import STALE_S, atomic_file, output_lock, partial_path, remove_leftovers, write_text
from kilowait.files.lock_file import ProcessIdentity, current_process

HOLD = """
import sys, time
from kilowait.files import output_lock
with output_lock(sys.argv[1], inside=sys.argv[2] == "inside"):
    print("held", flush=True)
    time.sleep(60)
"""
BOTH = pytest.mark.parametrize("inside", [False, True], ids=["beside", "inside"])


def lock_file(folder: Path, inside: bool) -> Path:
    return folder / ".kilowait-lock" if inside else folder.with_name(f".{folder.name}.kilowait-lock")


@pytest.fixture
def holder():
    """Start a process that holds the lock of a folder; it is killed at the end."""
    started = []

    def start(folder: Path, inside: bool = False) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", HOLD, str(folder), "inside" if inside else "beside"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def record(**changes: object) -> str:
    return json.dumps(
        {"format": "kilowait lock", **current_process().to_dict(), "date": "2026-01-02", "token": "t", **changes}
    )


def age(path: Path, seconds: float) -> None:
    os.utime(path, (time.time() - seconds, time.time() - seconds))


@BOTH
def test_second_process_gets_an_error_with_the_owner(tmp_path, holder, inside):
    folder = tmp_path / "first"
    process = holder(folder, inside)
    with pytest.raises(LockError) as caught, output_lock(folder, inside=inside):
        pytest.fail("two holders")
    text = str(caught.value)
    here = current_process()
    for part in (str(folder), here.user, here.host, f"process {process.pid} (started 20", "since 20", "UTC", "wait"):
        assert part in text


def test_the_two_kinds_of_lock_exclude_each_other(tmp_path, holder):
    for inside in (True, False):
        holder(tmp_path / f"folder{inside}", inside)
        with (
            pytest.raises(LockError, match="is being written"),
            output_lock(tmp_path / f"folder{inside}", inside=not inside),
        ):
            pytest.fail("two holders")


@BOTH
def test_lock_is_released_at_the_end_and_after_exceptions(tmp_path, inside):
    folder = tmp_path / "new" / "first"
    with output_lock(folder, inside=inside):
        assert json.loads(lock_file(folder, inside).read_text())["pid"] == os.getpid()
    for error in (ValueError, KeyboardInterrupt, SystemExit):
        with pytest.raises(error), output_lock(folder, inside=inside):
            raise error
    assert list(tmp_path.iterdir()) == [], "folders without content are removed"


def test_interrupt_releases_the_lock(tmp_path, holder):
    process = holder(tmp_path / "first")
    process.send_signal(signal.SIGINT)
    assert process.wait(10) != 0
    assert list(tmp_path.iterdir()) == []


@BOTH
def test_lock_of_a_killed_process_is_taken_over_with_one_line(tmp_path, holder, inside, caplog):
    process = holder(tmp_path / "first", inside)
    process.kill()
    process.wait(10)
    with output_lock(tmp_path / "first", inside=inside):
        pass
    (message,) = caplog.messages
    assert f"took over the lock of {tmp_path / 'first'}" in message
    assert f"process {process.pid}" in message and "no longer exists" in message
    caplog.clear()
    with output_lock(tmp_path / "first", inside=inside):
        pass
    assert not caplog.messages


def test_a_zombie_is_not_running(tmp_path, holder):
    process = holder(tmp_path / "first")
    process.kill()
    time.sleep(0.2)  # killed, but not yet waited for
    with output_lock(tmp_path / "first"):
        pass


@pytest.mark.parametrize(
    ("changes", "stale"),
    [
        ({"pid": 1}, True),  # the start time differs: the process id was used again
        ({"pid": 2**22 + 1}, True),
        ({"boot": "another"}, True),
        ({"boot": "another", "machine": "another"}, False),  # another host with the same name
        ({"namespace": "pid:[1]"}, False),  # a container on this host
        ({"host": "node7"}, False),
    ],
)
def test_stale_locks(tmp_path, monkeypatch, changes, stale):
    monkeypatch.setattr("kilowait.files.lock_file._machine", lambda: "this")
    path = lock_file(tmp_path / "first", False)
    path.write_text(record(**changes))
    if not stale:
        with pytest.raises(LockError, match="is being written"), output_lock(tmp_path / "first"):
            pytest.fail("two holders")
        age(path, STALE_S + 1)
    with output_lock(tmp_path / "first"):
        assert json.loads(path.read_text())["token"] != "t"


@pytest.fixture
def machine_files(tmp_path, monkeypatch):
    """The folder of the files that identify the machine: none at first."""
    monkeypatch.setattr("kilowait.files.lock_file._MACHINE_IDS", (tmp_path / "etc", tmp_path / "dbus"))
    monkeypatch.setattr("kilowait.files.lock_file._NETWORK_CARDS", tmp_path / "net")
    return tmp_path


def add_network_card(folder: Path, name: str, address: str, *, physical: bool = True) -> None:
    (folder / "net" / name / "device" if physical else folder / "net" / name).mkdir(parents=True)
    (folder / "net" / name / "address").write_text(f"{address}\n")


def after_reboot() -> ProcessIdentity:
    return ProcessIdentity.from_dict({**current_process().to_dict(), "boot": "before"})


@pytest.mark.parametrize("name", ["etc", "dbus"])
def test_lock_from_before_a_reboot_is_stale_with_a_machine_id(machine_files, name):
    (machine_files / name).write_text("0123456789abcdef0123456789abcdef\n")
    assert after_reboot().is_running() is False


def test_lock_from_before_a_reboot_is_stale_without_a_machine_id(machine_files):
    add_network_card(machine_files, "eno1", "3c:ec:ef:00:12:34")
    before = after_reboot()
    assert before.machine and "3c:ec" not in before.machine
    assert before.is_running() is False
    add_network_card(machine_files, "docker0", "00:42:ac:11:00:02", physical=False)
    assert current_process().machine == before.machine, "virtual networks come and go"
    add_network_card(machine_files, "eno2", "3c:ec:ef:00:12:35")
    assert before.is_running() is None, "another host of the same name"


@pytest.mark.parametrize("address", ["02:fc:00:00:00:01", "52:54:00:12:34:56", "00:00:00:00:00:00", ""])
def test_an_address_that_other_machines_may_have_identifies_no_machine(machine_files, address):
    (machine_files / "etc").write_text("uninitialized\n")
    add_network_card(machine_files, "eth0", address)
    before = after_reboot()
    assert before.machine == ""
    assert before.is_running() is None, "this host before a reboot, or another one of the same name"


def test_error_of_another_host_says_when_the_lock_is_stale(tmp_path):
    lock_file(tmp_path / "first", False).write_text(record(host="node7"))
    with pytest.raises(LockError, match=r"on host node7.*refreshed 0 s ago; it is stale 300 s after"):
        with output_lock(tmp_path / "first"):
            pass


def test_lock_is_refreshed_while_it_is_held(tmp_path, monkeypatch):
    monkeypatch.setattr("kilowait.files.output.HEARTBEAT_S", 0.01)
    path = lock_file(tmp_path / "first", False)
    with output_lock(tmp_path / "first"):
        age(path, 1000)
        time.sleep(0.3)
        assert time.time() - path.stat().st_mtime < 100


def test_a_lost_lock_stops_writing(tmp_path):
    folder = tmp_path / "first"
    with output_lock(folder, inside=True):
        write_text(folder / "a", "1")
        lock_file(folder, True).write_text(record(host="node7"))
        with pytest.raises(LockError, match=r"was lost: it now belongs to .* node7"):
            write_text(folder / "a", "2")
    assert (folder / "a").read_text() == "1"
    assert "node7" in lock_file(folder, True).read_text(), "the lock of another process is not removed"
    assert {file.name for file in folder.iterdir()} == {"a", ".kilowait-lock"}


def test_blocks_nest_in_one_thread_only(tmp_path):
    errors = []

    def other_thread() -> None:
        try:
            with output_lock(tmp_path / "first"):
                pass
        except LockError as error:
            errors.append(str(error))

    with output_lock(tmp_path / "first"):
        with output_lock(tmp_path / "first"):
            pass
        assert lock_file(tmp_path / "first", False).exists()
        thread = threading.Thread(target=other_thread)
        thread.start()
        thread.join()
    assert "another part of this process" in errors[0]


def write_under_lock(folder: Path) -> None:
    with output_lock(folder, inside=True):
        write_text(folder / "child", "1")


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_child_processes_write_under_the_lock_of_their_parent(tmp_path, method):
    with output_lock(tmp_path, inside=True):
        child = multiprocessing.get_context(method).Process(target=write_under_lock, args=(tmp_path,))
        child.start()
        child.join()
        assert child.exitcode == 0
        assert lock_file(tmp_path, True).exists()
    assert (tmp_path / "child").exists()


def test_symbolic_links_to_a_folder_have_the_same_lock(tmp_path, holder):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    holder(tmp_path / "real")
    with pytest.raises(LockError), output_lock(tmp_path / "link"):
        pass


@pytest.mark.parametrize("content", [b"", b"{", b"\x00\xff" * 50, b"[" * 100_000, b"[1]", b'{"pid": "x"}', b"1" * 5000])
def test_unreadable_lock_files_are_stale_by_their_age(tmp_path, content):
    path = lock_file(tmp_path / "first", False)
    path.write_bytes(content)
    with pytest.raises(LockError, match=r"cannot be read: wait for \d+ s"), output_lock(tmp_path / "first"):
        pytest.fail("two holders")
    age(path, STALE_S + 1)
    with output_lock(tmp_path / "first"):
        pass


@pytest.mark.parametrize("kind", ["folder", "link", "dangling link", "fifo"])
def test_other_things_in_place_of_a_lock_file_are_an_error(tmp_path, kind):
    path = lock_file(tmp_path / "first", False)
    target = tmp_path / "elsewhere"
    if kind == "folder":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        path.symlink_to(target)
        if kind == "link":
            target.write_text(record(pid=2**22 + 1))
    with pytest.raises(LockError, match="is not a regular file.*remove it"), output_lock(tmp_path / "first"):
        pytest.fail("held")


def test_folder_that_cannot_be_written_is_a_clear_error(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    with pytest.raises(LockError, match="is a file; name a folder"):
        with output_lock(tmp_path / "file" / "first"):
            pass

    def refuse(*_: object) -> float:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr("kilowait.files.lock_file._write_new", refuse)
    with pytest.raises(LockError, match="cannot be created: Read-only file system; name a folder that you can write"):
        with output_lock(tmp_path / "first"):
            pass


def test_file_systems_without_hard_links(tmp_path, monkeypatch):
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "no links")

    monkeypatch.setattr(os, "link", refuse)
    with output_lock(tmp_path / "first"):
        assert json.loads(lock_file(tmp_path / "first", False).read_text())["pid"] == os.getpid()
    lock_file(tmp_path / "first", False).write_text(record(pid=2**22 + 1))
    with output_lock(tmp_path / "first"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_own_leftovers_are_removed_and_nothing_else(tmp_path):
    folder = tmp_path / "first"
    folder.mkdir()
    (folder / "manifest.json").write_text("{}")
    keep = [".first.part", ".first.12.part", ".first.x-0123456789ab.part", ".second.12-0123456789ab.part", "a.tmp"]
    for name in keep:
        (tmp_path / name).touch()
    partial_path(folder).mkdir()
    partial_path(folder, "old").mkdir()
    with output_lock(folder):
        assert sorted(file.name for file in tmp_path.iterdir()) == sorted([*keep, "first", ".first.kilowait-lock"])


def test_a_folder_that_was_being_replaced_is_put_back(tmp_path):
    old = partial_path(tmp_path / "first", "old")
    old.mkdir()
    (old / "manifest.json").write_text("{}")
    with output_lock(tmp_path / "first"):
        assert (tmp_path / "first" / "manifest.json").exists()
        assert not old.exists()


def test_leftover_links_are_removed_without_their_target(tmp_path):
    (tmp_path / "target").mkdir()
    (tmp_path / "target" / "file").touch()
    partial_path(tmp_path / "a").symlink_to(tmp_path / "target")
    assert remove_leftovers(tmp_path) == 1
    assert (tmp_path / "target" / "file").exists()


def test_atomic_file_keeps_the_earlier_file_after_an_exception(tmp_path):
    write_text(tmp_path / "a", "1")
    with pytest.raises(RuntimeError), atomic_file(tmp_path / "a") as temporary:
        temporary.write_text("half")
        raise RuntimeError
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("a", "1")]


def test_atomic_file_has_the_default_mode_and_follows_links(tmp_path):
    (tmp_path / "link").symlink_to("real")
    with atomic_file(tmp_path / "link") as temporary:
        temporary.unlink()
        temporary.touch(0o600)
    (tmp_path / "plain").touch()
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").stat().st_mode == (tmp_path / "plain").stat().st_mode


@pytest.mark.parametrize("length", [200, 255])
def test_long_names_can_be_locked_and_written(tmp_path, length):
    with output_lock(tmp_path / ("x" * length)):
        write_text(tmp_path / ("x" * length), "1")


def test_a_folder_that_cannot_be_made_is_named_also_at_the_deadline(monkeypatch):
    from types import SimpleNamespace

    from kilowait.files import lock_file

    readings = iter([0.0, 0.0])
    clock = SimpleNamespace(monotonic=lambda: next(readings, 1e9), time=time.time, sleep=lambda seconds: None)
    monkeypatch.setattr(lock_file, "time", clock)
    monkeypatch.setattr(lock_file, "_write_new", _no_folder)
    with pytest.raises(LockError, match="cannot be created"):
        lock_file.create_lock(Path("/proc/.kilowait.kilowait-lock"), "/proc/kilowait")


def _no_folder(path, content):
    raise FileNotFoundError(errno.ENOENT, "No such file or directory", str(path))
