"""Adapters for external table generators (SDV, REaLTabFormer), run in a separate Python environment through files.

SDV's licence is not open source, and SDV and REaLTabFormer need older libraries than kilowait. So neither is imported
here: `worker` is a separate script run by the Python of the other environment, and `table_conversion` converts a log to
the table it reads and its table to jobs.

Jobs are sampled independently, as by the copula: daily cycles, sessions and repeated jobs are missing. Models are
stored in the library's own format, a pickle: loading it runs any code in it. Only the worker loads it, and only if the
caller names the Python that may do so (`load_generator`'s `allow_pickle_with`).
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import asdict, dataclass
from io import BytesIO
from pathlib import Path
from shutil import which
from tempfile import TemporaryDirectory
from typing import IO, Any, ClassVar
from zipfile import ZipFile

import numpy as np
import pyarrow as pa
from pyarrow import csv

from kilowait.errors import InputError
from kilowait.files.array_file import StoredArrays
from kilowait.rng import stream
from kilowait.synth.external.table_conversion import TableLayout
from kilowait.synth.external.worker import MISSING
from kilowait.synth.generator import RowGenerator, State, check_settings, setting
from kilowait.synth.log_schema import Columns
from kilowait.synth.sampler import SampleProgress
from kilowait.synth.trainer import check_device

__all__ = ["RealTabFormer", "SdvCTGAN", "SdvCopulaGAN", "SdvGaussianCopula", "SdvTVAE", "run_worker"]

WORKER = Path(__file__).with_name("worker.py")
PERCENTAGE = re.compile(rb"(\d+)%\|")
"""Percentage of a progress bar."""
MAX_OUTPUT_BYTES = 20_000
"""Maximum bytes kept of the worker's output."""


def interpreter(python: str) -> str:
    """Absolute path of a Python interpreter; empty: this one.

    >>> interpreter("") == sys.executable
    True
    >>> interpreter("/nowhere/python")
    Traceback (most recent call last):
    ...
    kilowait.errors.InputError: python=/nowhere/python is not a program; name the Python of the environment ...
    """
    path = which(os.path.expanduser(python)) if python else sys.executable
    if path is None:
        raise InputError(
            f"python={python} is not a program; name the Python of the environment the library is installed in, "
            "such as python=/home/me/sdv/bin/python"
        )
    return str(Path(path).absolute())  # do not follow links: a virtual environment is identified by its path


def run_worker(
    python: str,
    task: str,
    folder: Path,
    *,
    use_gpu: bool = False,
    install: str,
    activity: str,
    progress: SampleProgress,
) -> None:
    """Run a task in a folder.

    Args:
        python: path of the Python to run; empty: this one.
        task: fit or sample.
        folder: input and output files of the worker.
        use_gpu: whether it may use GPUs.
        install: installation hint for a missing library.
        activity: description of the task.
        progress: progress callback.
    """
    path = interpreter(python)
    # String hashes are random by default. Paths of this Python must not affect another one.
    environment = {**os.environ, "PYTHONHASHSEED": "0", "TOKENIZERS_PARALLELISM": "false"}
    if not use_gpu:
        environment["CUDA_VISIBLE_DEVICES"] = ""
    if path != sys.executable:
        environment = {name: value for name, value in environment.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    progress(activity, 0.0)
    try:
        worker = subprocess.Popen(
            [path, str(WORKER), task, str(folder)],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
    except OSError as problem:
        raise InputError(f"python={path} cannot be run ({problem.strerror}); name another one") from None
    with worker:
        try:
            assert worker.stdout is not None
            output = _read_output(worker.stdout, activity, progress)
        except BaseException:
            worker.kill()
            raise
    if worker.returncode:
        lines = output.decode(errors="replace").strip().splitlines() or ["no output"]
        if worker.returncode == MISSING:
            raise InputError(f"{path} has no library {lines[-1].strip()}. {install}")
        raise InputError(f"{activity}, the library failed in {path}: {lines[-1].strip()}") from RuntimeError(
            "\n".join(lines)
        )


def _read_output(stream: IO[bytes], activity: str, progress: SampleProgress) -> bytes:
    """The end of the worker's output; progress bars are forwarded to the callback."""
    output = b""
    while part := os.read(stream.fileno(), 65536):
        output = (output + part)[-MAX_OUTPUT_BYTES:]
        shares = PERCENTAGE.findall(output[-500:])
        if shares:
            progress(activity, min(1.0, int(shares[-1]) / 100))
    return output


# -- generators -----------------------------------------------------------------------------------


class ExternalGenerator(RowGenerator):
    """A model fitted and sampled by a worker process; this object stores the bytes of its files."""

    library: ClassVar[str]
    model: ClassVar[str] = ""
    """Name of the library's model."""
    install: ClassVar[str]
    """How to install the library, and its licence."""
    contains_code = True
    _layout: TableLayout
    _model: bytes
    """The worker's model files, as a ZIP archive."""

    def _options(self) -> dict[str, Any]:
        """Settings for the worker."""
        return {name: value for name, value in asdict(self.settings).items() if name != "python"}

    def _learn(self, rows: Columns, progress: SampleProgress) -> None:
        self._layout = TableLayout.of(rows)
        with TemporaryDirectory(prefix="kilowait-") as folder:
            path = Path(folder)
            csv.write_csv(pa.table(self._layout.table(rows)), path / "rows.csv")
            rng = stream(self.seed, f"synth.{self.name}.fit")
            self._run("fit", path, rng, progress, settings=self._options())
            self._model = _zip_files(path / "model")

    def _group(self, jobs: int, first_s: float, rng: np.random.Generator, progress: SampleProgress) -> Columns:
        # A few spare jobs, so that one group is enough.
        requested = jobs + jobs // 20 + 20
        with TemporaryDirectory(prefix="kilowait-") as folder:
            path = Path(folder)
            with ZipFile(BytesIO(self._model)) as archive:
                archive.extractall(path / "model")
            self._run("sample", path, rng, progress, jobs=requested)
            sampled = csv.read_csv(path / "sampled.csv")
        table = {name: sampled[name].to_numpy() for name in self._layout.varying_columns}
        return self._layout.rows(table, self.schema, first_s)

    def _run(self, task: str, path: Path, rng: np.random.Generator, progress: SampleProgress, **extra: Any) -> None:
        check_device(self.device)
        task_settings = {
            "library": self.library,
            "model": self.model,
            "kinds": self._layout.categorical_columns,
            "seed": int(rng.integers(2**31)),
            **extra,
        }
        (path / "task.json").write_text(json.dumps(task_settings), encoding="utf-8")
        run_worker(
            self.settings.python,
            task,
            path,
            use_gpu=self.device != "cpu",
            install=self.install,
            activity=f"fitting {self.name}" if task == "fit" else f"sampling from {self.name}",
            progress=progress,
        )

    def _state(self) -> State:
        return {**self._layout.state(), "model": np.frombuffer(self._model, np.uint8)}

    def _restore(self, state: StoredArrays) -> None:
        self._layout = TableLayout.restored(state, self.schema)
        self._model = state.whole("model", None, minimum=0, maximum=255).astype(np.uint8).tobytes()


def _zip_files(folder: Path) -> bytes:
    """A folder's files as a ZIP archive; the same files give the same archive."""
    raw = BytesIO()
    with ZipFile(raw, "w") as archive:
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            with archive.open(str(path.relative_to(folder)), "w") as file:
                file.write(path.read_bytes())
    return raw.getvalue()


# -- SDV -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SdvSettings:
    """Settings of SDV's networks; all others are SDV's defaults."""

    python: str = ""
    """Path of the Python that has the library; empty: the Python that runs kilowait."""
    epochs: int = setting(300, least=1)
    """Number of passes over the log."""
    batch_size: int = 500
    """Rows per step."""

    def __post_init__(self) -> None:
        check_settings(self)
        if not (self.batch_size >= 10 and self.batch_size % 10 == 0):
            raise InputError(f"batch_size is {self.batch_size}; it must be a multiple of 10")


@dataclass(frozen=True)
class SdvCopulaSettings:
    """Settings of SDV's copula."""

    python: str = ""
    """Path of the Python that has the library; empty: the Python that runs kilowait."""
    default_distribution: str = "beta"
    """Marginal distribution of the columns: norm, beta, truncnorm, uniform, gamma or gaussian_kde."""


class _Sdv(ExternalGenerator):
    library = "sdv"
    install = (
        "Make an environment for SDV and name its Python: python3 -m venv ~/sdv; ~/sdv/bin/pip install sdv; then "
        "--set python=~/sdv/bin/python. SDV is not open source: its Business Source License 1.1 does not allow "
        "offering it to others as a commercial service; read the license first"
    )


class _SdvNetwork(_Sdv):
    settings_type = SdvSettings

    def _options(self) -> dict[str, Any]:
        return super()._options() | {"verbose": True}


class SdvCTGAN(_SdvNetwork):
    """SDV's conditional GAN."""

    name, model = "sdv:CTGAN", "CTGAN"


class SdvTVAE(_SdvNetwork):
    """SDV's variational autoencoder."""

    name, model = "sdv:TVAE", "TVAE"


class SdvCopulaGAN(_SdvNetwork):
    """SDV's GAN on columns that a copula has normalized."""

    name, model = "sdv:CopulaGAN", "CopulaGAN"


class SdvGaussianCopula(_Sdv):
    """SDV's Gaussian copula."""

    name, model = "sdv:GaussianCopula", "GaussianCopula"
    settings_type = SdvCopulaSettings


# -- REaLTabFormer -------------------------------------------------------------------------------


@dataclass(frozen=True)
class RealTabFormerSettings:
    """Settings of REaLTabFormer, with its own defaults where noted."""

    python: str = ""
    """Path of the Python that has the library; empty: the Python that runs kilowait."""
    epochs: int = setting(1000, least=1)
    """Maximum number of passes over the log. REaLTabFormer's default."""
    batch_size: int = setting(8, least=1)
    """Rows per step; gradients accumulate over four steps. REaLTabFormer's default."""
    n_critic: int = setting(5, least=0)
    """Epochs between checks for overfitting (copied rows); 0: no checks. REaLTabFormer's default."""
    layers: int = setting(6, least=1)
    width: int = 768
    heads: int = setting(12, least=1)
    """Size of the network. REaLTabFormer's defaults."""

    def __post_init__(self) -> None:
        check_settings(self)
        if not (self.width >= 1 and self.width % self.heads == 0):
            raise InputError(f"width is {self.width}; it must be a multiple of heads, which is {self.heads}")


class RealTabFormer(ExternalGenerator):
    """A GPT-2 that generates table rows (A. V. Solatorio and O. Dupriez, 2023)."""

    name = library = "realtabformer"
    settings_type = RealTabFormerSettings
    install = (
        "Make an environment for REaLTabFormer (MIT) and name its Python: python3 -m venv ~/rtf; ~/rtf/bin/pip "
        "install realtabformer 'transformers<5'; then --set python=~/rtf/bin/python"
    )
