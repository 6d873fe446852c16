"""Random number generators: one seed per run, with independent named streams.

Stream names are part of recorded results. They keep their old spelling when modules are renamed.
"""

from __future__ import annotations

import zlib

import numpy as np

from kilowait.errors import InputError


def stream(seed: int, name: str) -> np.random.Generator:
    """Return the generator of the stream `name` under `seed`; streams are independent of each other.

    >>> stream(0, "arrivals").integers(100) == stream(0, "arrivals").integers(100)
    np.True_
    >>> stream(0, "arrivals").integers(2**62) == stream(0, "sizes").integers(2**62)
    np.False_
    """
    if seed < 0:
        raise InputError(f"the seed is {seed}; it must be 0 or more")
    return np.random.default_rng(np.random.SeedSequence([seed, zlib.crc32(name.encode())]))
