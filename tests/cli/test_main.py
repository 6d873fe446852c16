"""The way in and the ways out: help, version, errors, interrupts, closed pipes, start-up."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import warnings

import pytest

import kilowait as package
from kilowait.cli import app, console, main
from kilowait.errors import InputError

SHELL = [sys.executable, "-m", "kilowait.cli"]
VERBS = ["simulate", "compare", "policies", "clusters", "bench"]
TRACE_VERBS = ["describe", "convert", "list", "fetch"]
METERS = ["gpu", "cpu", "carbon", "label"]


def test_version(kilowait):
    said = kilowait("--version")
    assert (said.status, said.out) == (0, f"kilowait {package.__version__}\n")


def test_help_lists_the_verbs(kilowait):
    said = kilowait("--help")
    assert said.status == 0
    for verb in [*VERBS, "traces"]:
        assert f"\n  {verb} " in said.out


@pytest.mark.parametrize(
    "words",
    [[verb] for verb in VERBS]
    + [["traces", verb] for verb in TRACE_VERBS]
    + [["telemetry", verb] for verb in METERS],
)
def test_every_verb_has_an_example(kilowait, words):
    said = kilowait(*words, "--help")
    assert said.status == 0
    assert "Example" in said.out
    assert f"  kilowait {' '.join(words)}" in said.out


def test_no_words_at_all_show_the_help(kilowait):
    said = kilowait()
    assert "Usage: kilowait" in said.out + said.err


def test_unknown_verb_is_told_with_a_suggestion(kilowait):
    said = kilowait("simulat")
    assert said.status == 2
    assert "simulate" in said.err


def test_unknown_option_is_told(kilowait):
    said = kilowait("simulate", "lublin:10:4", "--polcy", "sjf")
    assert said.status == 2
    assert "--polcy" in said.err


def test_a_verb_whose_module_is_missing_is_absent(kilowait, monkeypatch):
    monkeypatch.setitem(app.VERBS, "levitate", ("kilowait.cli.levitate", "Not there."))
    assert "levitate" not in kilowait("--help").out
    assert kilowait("levitate").status == 2


def test_debug_may_stand_anywhere_and_shows_where_it_came_from(capfd):
    for words in (["--debug", "simulate", "nowhere.swf"], ["simulate", "nowhere.swf", "-v"]):
        with pytest.raises(InputError, match="nowhere.swf"):
            main(words)
    assert app.without_debug(["a", "--", "-v"]) == (["a", "--", "-v"], False)
    capfd.readouterr()


def test_interrupt(kilowait, monkeypatch):
    def stopped(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("kilowait.experiments.scenario.run_scenario", stopped)
    said = kilowait("simulate", "lublin:10:4")
    assert (said.status, said.out, said.err) == (130, "", "interrupted\n")


def test_out_of_memory_is_told(kilowait, monkeypatch):
    def full(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr("kilowait.experiments.scenario.run_scenario", full)
    assert "memory" in kilowait("simulate", "lublin:10:4").error()


def test_log_and_warnings_are_single_lines(capfd):
    with console.plain_messages(), warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.getLogger("kilowait").warning("compiling,\n once")
        warnings.warn("so and\n so", stacklevel=1)
    assert capfd.readouterr().err == "compiling, once\nwarning: so and so\n"


def test_numbers_for_people():
    assert [console.number(v) for v in (0.0, 999.96, 1234.5, 1e9)] == ["0", "1000", "1,234", "1,000,000,000"]
    assert console.number(float("inf")) == "-"
    assert console.count(2, "query", "queries") == "2 queries"


def test_closed_pipe_is_quiet():
    child = subprocess.Popen([*SHELL, "policies"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert child.stdout is not None and child.stderr is not None
    child.stdout.close()
    err = child.stderr.read()
    child.stderr.close()
    child.wait(timeout=60)
    assert err == b""


def test_help_imports_neither_numba_nor_arrow():
    code = (
        "import sys; from kilowait.cli import main; main(['--help']); "
        "heavy = {'numba', 'pyarrow', 'numpy', 'rich', 'torch'} & set(sys.modules); "
        "sys.exit(repr(heavy) if heavy else 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr


def test_describing_and_opening_need_no_numba(tmp_path):
    code = (
        "import sys; from kilowait.cli import main; main(['traces', 'describe', 'lublin:100:16']); "
        "import kilowait.evaluation.storage; sys.exit('numba' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr


def test_as_a_process_an_error_is_status_2():
    done = subprocess.run(
        [*SHELL, "simulate", "nowhere.swf"],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "FORCE_COLOR": "0"},
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("error: there is no file nowhere.swf")
    assert done.stdout == ""


def test_progress_and_signs_of_life_stay_off_pipes(capfd):
    with console.busy("reading"), console.progress(3) as bar:
        assert bar is None
    assert capfd.readouterr() == ("", "")


def test_on_a_terminal_there_is_a_bar(monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    with console.busy("reading"):
        pass
    with console.progress(3) as bar:
        assert bar is not None
        bar.update(bar.task_ids[0], completed=2)


def test_a_narrow_terminal_breaks_lines_but_cuts_nothing(kilowait, monkeypatch):
    words = ("compare", "lublin:60:16:0.9", "-p", "fcfs,multifactor:age=500", "-b", "easy")
    wide = kilowait(*words).out
    monkeypatch.setenv("COLUMNS", "40")
    assert kilowait(*words).out == wide
    assert "multifactor:age=500" in wide
    policies = kilowait("policies").out
    assert "half_life_s" in policies and "Shortest estimate" in policies


def test_words_between_colons_are_no_emoji(monkeypatch, capfd):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    console.title("lublin:100:16 [bold]")
    assert capfd.readouterr().out == "lublin:100:16 [bold]\n"
