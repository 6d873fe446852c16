"""Registry of workload generators: names, fitting by name, and loading from a folder."""

from __future__ import annotations

from dataclasses import asdict
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import Any

from kilowait.errors import InputError, UnknownNameError
from kilowait.files.array_file import read_arrays
from kilowait.files.documents import read_json_object
from kilowait.files.fields import Anything, Record, Text, check_fields
from kilowait.jobs import JobTable
from kilowait.synth.generator import CARD, STATE, VERSION, Generator, settings_from
from kilowait.synth.log_schema import CARD_FIELDS, stored_schema
from kilowait.synth.sampler import SampleProgress
from kilowait.synth.trainer import CheckpointStore

GENERATORS: dict[str, tuple[str, str]] = {
    "bootstrap": (
        "kilowait.synth.bootstrap:BootstrapGenerator",
        "block bootstrap of weeks of the log: copies, a baseline",
    ),
    "copula": (
        "kilowait.synth.copula:CopulaGenerator",
        "Gaussian copula: marginal distributions and rank correlations of the log",
    ),
    "transformer": (
        "kilowait.synth.transformer:TransformerGenerator",
        "transformer: submission times as in the log, jobs from a network of each user's history",
    ),
    "ctgan": ("kilowait.synth.tabular:CtganGenerator", "conditional GAN for tables"),
    "tvae": ("kilowait.synth.tabular:TvaeGenerator", "variational autoencoder for tables"),
    "copulagan": (
        "kilowait.synth.tabular:CopulaGanGenerator",
        "CTGAN on normal scores, which keeps the marginal distributions",
    ),
    "diffusion": ("kilowait.synth.tabular:DiffusionGenerator", "tabular diffusion model"),
}
"""Name to import path and description."""
EXTERNAL_GENERATORS: dict[str, tuple[str, str]] = {
    "sdv:CTGAN": ("kilowait.synth.external:SdvCTGAN", "SDV's conditional GAN"),
    "sdv:TVAE": ("kilowait.synth.external:SdvTVAE", "SDV's variational autoencoder"),
    "sdv:CopulaGAN": ("kilowait.synth.external:SdvCopulaGAN", "SDV's GAN on normalized columns"),
    "sdv:GaussianCopula": ("kilowait.synth.external:SdvGaussianCopula", "SDV's Gaussian copula"),
    "realtabformer": ("kilowait.synth.external:RealTabFormer", "REaLTabFormer: GPT-2 for table rows"),
}
"""Generators of external libraries, in a separate Python environment; see `kilowait.synth.external`."""


def fit_generator(
    jobs: JobTable,
    model: str = "bootstrap",
    *,
    seed: int = 0,
    keep_names: bool = False,
    progress: SampleProgress | None = None,
    device: str = "cpu",
    checkpoints: CheckpointStore | None = None,
    **settings: Any,
) -> Generator:
    """Fit a generator by name to a log; see `Generator.fit`.

    >>> from kilowait.synth import lublin
    >>> generator = fit_generator(lublin(500, 64, seed=1), "bootstrap")
    >>> len(generator.sample(2000, seed=7))
    2000
    """
    return _generator_class(model).fit(
        jobs, seed=seed, keep_names=keep_names, progress=progress, device=device, checkpoints=checkpoints, **settings
    )


def load_generator(folder: str | PathLike[str], *, allow_pickle_with: str | None = None) -> Generator:
    """Load the generator that `Generator.save` wrote into a folder.

    Args:
        folder: folder of a saved generator.
        allow_pickle_with: path of the Python that may run code contained in the folder. Only generators of external
            libraries contain code; without this argument they are not loaded.
    """
    path = Path(folder)
    remedy = "fit the generator again"
    try:
        card = read_json_object(path / CARD, remedy=remedy, constants=True)
    except FileNotFoundError:
        raise InputError(f"{path} has no {CARD}; give a folder written by kilowait synth fit") from None
    except OSError as problem:
        raise InputError(f"cannot read {path / CARD}: {problem.strerror or problem}; {remedy}") from None
    check_fields(card, Record({"version": Anything(), "generator": Text()}), path / CARD, remedy=remedy)
    if card["version"] != VERSION:
        raise InputError(
            f"{path} has version {str(card['version'])[:100]} and this kilowait reads version {VERSION}; {remedy}"
        )
    generator_class = _generator_class(card["generator"])
    if generator_class.contains_code and allow_pickle_with is None:
        raise InputError(
            f"{path} contains a pickle of {card['generator']}, and loading it runs any code in it; if you trust its "
            "source, name the Python that has the library: --allow-pickle-with PYTHON, or allow_pickle_with= in Python"
        )
    check_fields(card, CARD_FIELDS, path / CARD, remedy=remedy)
    settings = card["settings"] | ({"python": allow_pickle_with} if generator_class.contains_code else {})
    try:
        arrays = read_arrays(path / STATE)
        schema = stored_schema(card["log"], arrays, path / CARD)
        generator = generator_class(schema, settings_from(generator_class, settings), card["seed"])
        generator.privacy, generator.ks_distances = card.get("privacy"), card.get("ks_distances")
        generator._restore(arrays)
    except OSError as problem:
        raise InputError(f"{path / STATE} is missing ({problem.strerror or problem}); {remedy}") from None
    except InputError as problem:
        raise InputError(f"{problem}; {remedy}") from None
    return generator


def settings_of(name: str) -> dict[str, Any]:
    """Settings of a generator and their defaults.

    >>> settings_of("bootstrap")
    {'days': 7}
    """
    return asdict(_generator_class(name).settings_type())


def _generator_class(name: str) -> type[Generator]:
    known = GENERATORS | EXTERNAL_GENERATORS
    if name not in known:
        raise UnknownNameError("generator", name, known)
    module, _, class_name = known[name][0].partition(":")
    generator_class: type[Generator] = getattr(import_module(module), class_name)
    return generator_class
