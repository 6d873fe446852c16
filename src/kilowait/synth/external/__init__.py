"""Other people's generators: libraries that live in an environment of their own, asked through files.

SDV's licence is not an open one, and SDV and REaLTabFormer want older libraries than kilowait does. So neither is
ever imported here: `worker` is a script of its own that the Python of the user's other environment runs, `running`
runs it, `layout` turns a log into the table it reads and its table into jobs, and `generator` makes generators of it.
"""

from kilowait.synth.external.generator import (
    RealTabFormer,
    SdvCopulaGAN,
    SdvCTGAN,
    SdvGaussianCopula,
    SdvTVAE,
)

__all__ = ["SdvCTGAN", "SdvTVAE", "SdvCopulaGAN", "SdvGaussianCopula", "RealTabFormer"]
