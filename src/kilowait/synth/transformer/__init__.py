"""Transformer generator: submission sessions come from the log's calendar, the jobs of each user are generated in
sequence.

`tokenizer` encodes columns as codes, `calendar` describes a log as users' weeks and sessions; `network` is the model,
`dataset` its training data and `train` its training; `sample` samples codes, `load_matching` selects among sampled
weeks, and `generator` produces jobs according to `settings`.
"""

from kilowait.synth.transformer.generator import TransformerGenerator
from kilowait.synth.transformer.settings import TransformerSettings

__all__ = ["TransformerGenerator", "TransformerSettings"]
