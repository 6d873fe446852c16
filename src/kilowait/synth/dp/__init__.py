"""Differentially private training of the transformer, with user-level (epsilon, delta) privacy.

A fit uses the log through two mechanisms only: noisy counts over users (`noisy_counts`), and clipped, noisy gradients
of users (`train`). Everything else is public or derived: codes on fixed grids (`public_bins`) and a calendar generated
from the noisy counts (`calendar`). `accountant` splits and accounts epsilon, with Opacus.
"""

from kilowait.synth.dp.fit import PrivateFit, private_fit

__all__ = ["PrivateFit", "private_fit"]
