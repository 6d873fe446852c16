"""Fit external table models and sample from them; a script run by the Python that has those libraries.

    python worker.py fit FOLDER       task.json, rows.csv -> model/
    python worker.py sample FOLDER    task.json, model/   -> sampled.csv

It imports nothing of kilowait and is compatible with Python 3.9. The libraries report progress by their own progress
bars on stderr.
"""

from __future__ import annotations

import json
import random
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

MISSING = 3
"""Exit status if a library is missing; the last line of output is its name."""


def main(action: str, folder: Path) -> None:
    """Do one task."""
    # Do not import from the script's own folder: it contains kilowait's modules.
    sys.path[:] = [path for path in sys.path if Path(path or ".").resolve() != Path(__file__).resolve().parent]
    task = json.loads((folder / "task.json").read_text())
    fit, sample = {"sdv": (fit_sdv, sample_sdv), "realtabformer": (fit_rtf, sample_rtf)}[task["library"]]
    try:
        if find_spec(task["library"]) is None:  # checked before heavy imports
            raise ModuleNotFoundError(name=task["library"])
        import numpy as np
        import pandas as pd
        import torch

        random.seed(task["seed"])
        np.random.seed(task["seed"])  # noqa: NPY002 - the libraries use the global generator
        torch.manual_seed(task["seed"])
        if action == "fit":
            (folder / "model").mkdir()
            rows = pd.read_csv(folder / "rows.csv", float_precision="round_trip")
            # Categories are strings, so that no library treats them as numbers.
            fit(rows.astype(dict.fromkeys(task["kinds"], str)), task, folder / "model")
        else:
            sample(task, folder / "model").to_csv(folder / "sampled.csv", index=False)
    except ModuleNotFoundError as error:
        sys.stderr.write(f"\n{error.name}\n")
        sys.exit(MISSING)


# -- SDV -----------------------------------------------------------------------------------------


def fit_sdv(rows: Any, task: dict[str, Any], folder: Path) -> None:
    """Fit one of SDV's synthesizers of single tables."""
    import numpy as np
    import sdv
    from sdv import single_table
    from sdv.metadata import Metadata

    columns = {name: {"sdtype": "categorical" if name in task["kinds"] else "numerical"} for name in rows.columns}
    metadata = Metadata.load_from_dict({"tables": {"jobs": {"columns": columns}}})
    synthesizer = getattr(single_table, task["model"] + "Synthesizer")(metadata, **task["settings"])
    # Times span five orders of magnitude; SDV's models get logarithms, REaLTabFormer generates digits.
    numeric = [name for name in rows.columns if name not in task["kinds"]]
    rows[numeric] = np.log1p(rows[numeric])
    # From version 2 on tables are passed in a dictionary, in and out.
    synthesizer.fit({"jobs": rows} if int(sdv.__version__.split(".")[0]) >= 2 else rows)
    synthesizer.save(str(folder / "synthesizer.pkl"))


def sample_sdv(task: dict[str, Any], folder: Path) -> Any:
    """Rows from a saved synthesizer."""
    import numpy as np
    from sdv.utils import load_synthesizer

    synthesizer = load_synthesizer(str(folder / "synthesizer.pkl"))
    # SDV has no public seed argument; without this every sample would be the same.
    synthesizer._set_random_state(task["seed"])
    rows = synthesizer.sample(task["jobs"])
    rows = rows["jobs"] if isinstance(rows, dict) else rows
    numeric = [name for name in rows.columns if name not in task["kinds"]]
    rows[numeric] = np.expm1(rows[numeric].astype(float))
    return rows


# -- REaLTabFormer -------------------------------------------------------------------------------


def fit_rtf(rows: Any, task: dict[str, Any], folder: Path) -> None:
    """Fit a REaLTabFormer for single tables."""
    from realtabformer import REaLTabFormer
    from transformers.models.gpt2 import GPT2Config

    settings = task["settings"]
    model = REaLTabFormer(
        model_type="tabular",
        tabular_config=GPT2Config(n_layer=settings["layers"], n_embd=settings["width"], n_head=settings["heads"]),
        epochs=settings["epochs"],
        batch_size=settings["batch_size"],
        random_state=task["seed"],
        seed=task["seed"],
        report_to="none",
    )
    model.fit(rows, device=device(), n_critic=settings["n_critic"], gen_kwargs={})
    # REaLTabFormer cannot write a path attribute as JSON.
    model.full_save_dir = str(model.full_save_dir)
    model.save(folder)
    for checkpoint in [path for path in next(folder.iterdir()).iterdir() if path.is_dir()]:
        shutil.rmtree(checkpoint)  # copies of the weights, some five times their size


def sample_rtf(task: dict[str, Any], folder: Path) -> Any:
    """Rows from a saved REaLTabFormer."""
    from realtabformer import REaLTabFormer

    (saved,) = folder.iterdir()
    model = REaLTabFormer.load_from_dir(saved)
    model.random_state = task["seed"]
    return model.sample(n_samples=task["jobs"], device=device())


def device() -> str:
    """Training device."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
