"""Workloads made by rule: the Lublin-Feitelson model, GPU jobs, users' estimates, and logs brought to another load."""

from kilowait.synth.estimates import user_estimates
from kilowait.synth.gavel import gavel_jobs
from kilowait.synth.gpu_jobs import gpu_load, gpu_workload
from kilowait.synth.lublin import lublin
from kilowait.synth.parameters import BATCH, COMBINED, INTERACTIVE, LublinParameters
from kilowait.synth.rescale import offered_load, rescale_load

__all__ = [
    "BATCH",
    "COMBINED",
    "INTERACTIVE",
    "LublinParameters",
    "gavel_jobs",
    "gpu_load",
    "gpu_workload",
    "lublin",
    "offered_load",
    "rescale_load",
    "user_estimates",
]
