"""Workloads made by rule: the Lublin-Feitelson model, users' estimates, and logs brought to another load."""

from kilowait.synth.estimates import user_estimates
from kilowait.synth.lublin import lublin
from kilowait.synth.parameters import BATCH, COMBINED, INTERACTIVE, LublinParameters
from kilowait.synth.rescale import offered_load, rescale_load

__all__ = [
    "BATCH",
    "COMBINED",
    "INTERACTIVE",
    "LublinParameters",
    "lublin",
    "offered_load",
    "rescale_load",
    "user_estimates",
]
