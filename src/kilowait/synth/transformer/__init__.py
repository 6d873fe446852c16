"""The transformer: who submits when is the log's calendar, what they submit is generated, job after job of each user.

`codes` turns columns into numbered codes, `calendar` a log into users' weeks and sessions; `network` is the model,
`lesson` what it sees of a log and `training` how it learns; `sampling` draws codes, `steering` chooses among drawn
weeks, and `generator` makes jobs of it all, as `settings` say.
"""

from kilowait.synth.transformer.generator import TransformerGenerator
from kilowait.synth.transformer.settings import TransformerSettings

__all__ = ["TransformerGenerator", "TransformerSettings"]
