"""Generators of external libraries: errors without the library, saved folders, and loading of pickles."""

from __future__ import annotations

import json
import os
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from kilowait.errors import InputError, UnknownNameError
from kilowait.synth import fit_generator, load_generator
from kilowait.synth.external import SdvSettings, SdvTVAE, _zip_files, run_worker
from kilowait.synth.external.table_conversion import TableLayout
from kilowait.synth.log_schema import log_schema, rows_of
from kilowait.synth.registry import EXTERNAL_GENERATORS, settings_of
from tests.synth.test_generator import log


@pytest.fixture
def folder(tmp_path):
    """Folder of a generator with arbitrary bytes as its model."""
    (tmp_path / "model" / "deep").mkdir(parents=True)
    (tmp_path / "model" / "deep" / "weights.bin").write_bytes(bytes(range(256)) * 20)
    schema = log_schema(log())
    generator = SdvTVAE(schema, SdvSettings(python="/home/anna/python", epochs=7), 3)
    generator._layout, generator._model = TableLayout.of(rows_of(log(), schema)), _zip_files(tmp_path / "model")
    generator.save(tmp_path / "saved")
    return tmp_path / "saved"


@pytest.mark.skipif(find_spec("sdv") is not None, reason="SDV is installed next to kilowait")
@pytest.mark.parametrize("name", [name for name in EXTERNAL_GENERATORS if name.startswith("sdv:")])
def test_error_without_sdv_names_installation_and_licence(name):
    with pytest.raises(InputError, match="has no library sdv.*pip install sdv.*Business Source License") as error:
        fit_generator(log(), name)
    assert sys.executable in str(error.value)


@pytest.mark.skipif(find_spec("realtabformer") is not None, reason="it is installed next to kilowait")
def test_error_without_realtabformer_names_installation():
    with pytest.raises(InputError, match=r"has no library realtabformer.*\(MIT\).*pip install realtabformer"):
        fit_generator(log(), "realtabformer")


def test_pickles_are_not_loaded_without_permission(folder):
    message = "contains a pickle of sdv:TVAE, and loading it runs any code in it; .* --allow-pickle-with PYTHON"
    with pytest.raises(InputError, match=message):
        load_generator(folder)
    assert "runs any code in it" in json.loads((folder / "card.json").read_text())["warning"]


def test_python_in_the_card_is_not_run(folder, tmp_path):
    """The author of a folder must not choose the program that loads it."""
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    program.chmod(0o755)
    card = json.loads((folder / "card.json").read_text())
    card["settings"]["python"] = str(program)
    (folder / "card.json").write_text(json.dumps(card))
    generator = load_generator(folder, allow_pickle_with=sys.executable)
    assert generator.settings == SdvSettings(python=sys.executable, epochs=7)
    with pytest.raises(InputError, match=sys.executable):
        generator.sample(10)
    assert not (tmp_path / "ran").exists()


def test_save_and_load(folder, tmp_path):
    generator = load_generator(folder, allow_pickle_with=sys.executable)
    generator.save(tmp_path / "again")
    with np.load(folder / "state.npz") as one, np.load(tmp_path / "again" / "state.npz") as other:
        assert one.files == other.files
        assert all(np.array_equal(one[name], other[name]) for name in one.files)
    assert generator._model == _zip_files(tmp_path / "model")


def test_truncated_state(folder):
    state = folder / "state.npz"
    state.write_bytes(state.read_bytes()[:1000])
    with pytest.raises(InputError, match=r"state.npz is damaged"):
        load_generator(folder, allow_pickle_with=sys.executable)


def test_settings():
    assert settings_of("sdv:CTGAN") == {"python": "", "epochs": 300, "batch_size": 500}
    with pytest.raises(UnknownNameError, match="unknown generator 'sdv:tvae'; .* known: .*sdv:TVAE"):
        fit_generator(log(), "sdv:tvae")


@pytest.mark.parametrize(
    ("model", "setting", "message"),
    [
        ("sdv:CTGAN", {"epochs": 0}, "epochs is 0; it must be at least 1"),
        ("sdv:CTGAN", {"batch_size": 25}, "batch_size is 25; it must be a multiple of 10"),
        ("sdv:CTGAN", {"epochs": "many"}, "epochs of the generator sdv:CTGAN is 'many'; it must be a number"),
        ("sdv:CTGAN", {"python": 3}, "python of the generator sdv:CTGAN is 3; it must be text"),
        ("bootstrap", {"days": "seven"}, "days of the generator bootstrap is 'seven'; it must be a number"),
        ("realtabformer", {"n_critic": -1}, "n_critic is -1; it must be at least 0"),
        ("realtabformer", {"width": 100}, "width is 100; it must be a multiple of heads, which is 12"),
    ],
)
def test_invalid_settings(model, setting, message):
    with pytest.raises(InputError, match=message):
        fit_generator(log(), model, **setting)


@pytest.fixture
def program(tmp_path):
    """Writes a shell script to be used as the Python of the worker."""

    def write(lines: str) -> str:
        path = tmp_path / "python"
        path.write_text(f"#!/bin/sh\n{lines}\n")
        path.chmod(0o755)
        return str(path)

    return write


def run(python: str, folder: Path, progress=lambda what, share: None) -> None:
    run_worker(python, "fit", folder, install="Install it.", activity="fitting", progress=progress)


def test_progress_bars_are_forwarded(program, tmp_path):
    reports = []
    run(
        program(r"printf 'Epoch 3:  25%%|##   | 1/4\r' >&2; sleep 0.2; echo '100%|####| 4/4'"),
        tmp_path,
        lambda what, share: reports.append((what, share)),
    )
    assert reports[0] == ("fitting", 0.0) and reports[-1] == ("fitting", 1.0)
    assert ("fitting", 0.25) in reports


def test_error_is_the_last_line_of_output(program, tmp_path):
    with pytest.raises(InputError, match="fitting, the library failed in .*/python: ValueError: too few") as error:
        run(program("echo Traceback >&2; echo 'ValueError: too few' >&2; exit 1"), tmp_path)
    assert "Traceback" in str(error.value.__cause__)


def test_failure_without_output(program, tmp_path):
    with pytest.raises(InputError, match="no output"):
        run(program("exit 9"), tmp_path)


def test_missing_python(tmp_path):
    with pytest.raises(InputError, match="python=/nowhere/python is not a program; name the Python of"):
        run("/nowhere/python", tmp_path)


def test_python_that_is_not_executable(tmp_path):
    (tmp_path / "python").write_bytes(b"\x7fELF, not really")
    (tmp_path / "python").chmod(0o755)
    with pytest.raises(InputError, match="cannot be run"):
        run(str(tmp_path / "python"), tmp_path)


def test_interruption_ends_the_worker(program, tmp_path):
    def interrupted(what, share):
        if share > 0:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(program(f"echo $$ > {tmp_path}/pid; echo '10%|#'; exec sleep 60"), tmp_path, interrupted)
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_environment_of_the_worker(program, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "/somewhere")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    echo = program(f"echo path=$PYTHONPATH seed=$PYTHONHASHSEED gpus=$CUDA_VISIBLE_DEVICES > {tmp_path}/environment")
    run(echo, tmp_path)
    assert (tmp_path / "environment").read_text() == "path= seed=0 gpus=\n"
    run_worker(echo, "fit", tmp_path, use_gpu=True, install="", activity="fitting", progress=lambda what, share: None)
    assert (tmp_path / "environment").read_text() == "path= seed=0 gpus=0,1\n"


def test_relative_path_of_python(program, tmp_path, monkeypatch):
    program("exit 0")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    run("./python", tmp_path / "elsewhere")


def test_worker_does_not_import_kilowait(tmp_path):
    """Run isolated from installed packages, the worker fails only because of the missing task file."""
    worker = Path(sys.modules["kilowait.synth.external.worker"].__file__)
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    python.chmod(0o755)
    start_s = time.monotonic()
    with pytest.raises(InputError, match=r"No such file or directory: '.*task\.json'"):
        run(str(python), tmp_path)
    assert time.monotonic() - start_s < 30
    assert "import kilowait" not in worker.read_text() and "from kilowait" not in worker.read_text()
