"""Help, version, errors, interrupts, closed pipes and start-up imports."""

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
    result = kilowait("--version")
    assert (result.status, result.out) == (0, f"kilowait {package.__version__}\n")


def test_help_lists_the_verbs(kilowait):
    result = kilowait("--help")
    assert result.status == 0
    for verb in [*VERBS, "traces"]:
        assert f"\n  {verb} " in result.out


@pytest.mark.parametrize(
    "args",
    [[verb] for verb in VERBS] + [["traces", verb] for verb in TRACE_VERBS] + [["telemetry", verb] for verb in METERS],
)
def test_every_command_has_an_example(kilowait, args):
    result = kilowait(*args, "--help")
    assert result.status == 0
    assert "Example" in result.out
    assert f"  kilowait {' '.join(args)}" in result.out


def test_no_arguments_show_the_help(kilowait):
    result = kilowait()
    assert "Usage: kilowait" in result.out + result.err


def test_unknown_command_suggests_a_name(kilowait):
    result = kilowait("simulat")
    assert result.status == 2
    assert "simulate" in result.err


def test_unknown_option_is_an_error(kilowait):
    result = kilowait("simulate", "lublin:10:4", "--polcy", "sjf")
    assert result.status == 2
    assert "--polcy" in result.err


def test_command_without_its_module_is_absent(kilowait, monkeypatch):
    monkeypatch.setitem(app.VERBS, "levitate", ("kilowait.cli.levitate", "Not there."))
    assert "levitate" not in kilowait("--help").out
    assert kilowait("levitate").status == 2


def test_debug_raises_the_error_wherever_it_stands(capfd):
    for args in (["--debug", "simulate", "nowhere.swf"], ["simulate", "nowhere.swf", "-v"]):
        with pytest.raises(InputError, match="nowhere.swf"):
            main(args)
    assert app.without_debug(["a", "--", "-v"]) == (["a", "--", "-v"], False)
    capfd.readouterr()


def test_interrupt_exits_with_130(kilowait, monkeypatch):
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("kilowait.experiments.scenario.run_scenario", interrupted)
    result = kilowait("simulate", "lublin:10:4")
    assert (result.status, result.out, result.err) == (130, "", "interrupted\n")


def test_out_of_memory_is_an_error_message(kilowait, monkeypatch):
    def out_of_memory(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr("kilowait.experiments.scenario.run_scenario", out_of_memory)
    assert "memory" in kilowait("simulate", "lublin:10:4").error()


def test_log_and_warnings_are_single_lines(capfd):
    with console.plain_messages(), warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.getLogger("kilowait").warning("compiling,\n once")
        warnings.warn("so and\n so", stacklevel=1)
    assert capfd.readouterr().err == "compiling, once\nwarning: so and so\n"


def test_number_formatting():
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
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert process.returncode == 0, process.stderr


def test_describe_and_storage_do_not_import_numba(tmp_path):
    code = (
        "import sys; from kilowait.cli import main; main(['traces', 'describe', 'lublin:100:16']); "
        "import kilowait.evaluation.storage; sys.exit('numba' in sys.modules)"
    )
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert process.returncode == 0, process.stderr


def test_errors_exit_with_2():
    process = subprocess.run(
        [*SHELL, "simulate", "nowhere.swf"],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "FORCE_COLOR": "0"},
        check=False,
    )
    assert process.returncode == 2
    assert process.stderr.startswith("error: there is no file nowhere.swf")
    assert process.stdout == ""


def test_progress_is_not_printed_to_pipes(capfd):
    with console.busy("reading"), console.progress(3) as bar:
        assert bar is None
    assert capfd.readouterr() == ("", "")


def test_terminal_shows_a_progress_bar(monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    with console.busy("reading"):
        pass
    with console.progress(3) as bar:
        assert bar is not None
        bar.update(bar.task_ids[0], completed=2)


def test_terminal_width_does_not_change_output(kilowait, monkeypatch):
    args = ("compare", "lublin:60:16:0.9", "-p", "fcfs,multifactor:age=500", "-b", "easy")
    wide = kilowait(*args).out
    monkeypatch.setenv("COLUMNS", "40")
    assert kilowait(*args).out == wide
    assert "multifactor:age=500" in wide
    policies = kilowait("policies").out
    assert "half_life_s" in policies and "Shortest estimate" in policies


def test_markup_is_printed_literally(monkeypatch, capfd):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    console.title("lublin:100:16 [bold]")
    assert capfd.readouterr().out == "lublin:100:16 [bold]\n"
