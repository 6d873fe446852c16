"""Adapters for external table generators (SDV, REaLTabFormer), run in a separate Python environment through files.

SDV's licence is not open source, and SDV and REaLTabFormer need older libraries than kilowait. So neither is imported
here: `worker` is a separate script run by the Python of the other environment, `worker_process` runs it, `layout`
converts a log to the table it reads and its table to jobs, and `generator` contains the generators.
"""

from kilowait.synth.external.generator import RealTabFormer, SdvCopulaGAN, SdvCTGAN, SdvGaussianCopula, SdvTVAE

__all__ = ["SdvCTGAN", "SdvTVAE", "SdvCopulaGAN", "SdvGaussianCopula", "RealTabFormer"]
