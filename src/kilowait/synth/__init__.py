"""Synthetic workloads: parametric models (Lublin-Feitelson, GPU jobs), learned generators, user estimates, load
scaling."""

from kilowait.synth.generator import Generator
from kilowait.synth.gpu_workload import GpuWorkloadSettings, gavel_jobs, gpu_load, gpu_workload
from kilowait.synth.lublin import lublin, user_estimates
from kilowait.synth.lublin_parameters import (
    BATCH_PARAMETERS,
    COMBINED_PARAMETERS,
    INTERACTIVE_PARAMETERS,
    LublinParameters,
)
from kilowait.synth.registry import GENERATORS, fit_generator, load_generator
from kilowait.synth.rescale import offered_load, rescale_load
from kilowait.synth.what_if import WhatIf

__all__ = [
    "BATCH_PARAMETERS",
    "COMBINED_PARAMETERS",
    "GENERATORS",
    "Generator",
    "GpuWorkloadSettings",
    "INTERACTIVE_PARAMETERS",
    "LublinParameters",
    "WhatIf",
    "fit_generator",
    "gavel_jobs",
    "gpu_load",
    "gpu_workload",
    "load_generator",
    "lublin",
    "offered_load",
    "rescale_load",
    "user_estimates",
]
