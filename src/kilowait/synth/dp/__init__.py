"""Differentially private fits of the transformer: what is released of a log hides any one user, by a stated epsilon.

Everything of the log that a fit keeps goes through one of two doors: counts of users with noise (`counting`), or
gradients of users, clipped and with noise (`training`). The rest is public: codes on fixed grids (`grid`), a
calendar made from the noisy counts (`calendar`). `budget` shares epsilon out and adds it up, with Opacus.
"""

from kilowait.synth.dp.fit import PrivateFit, private_fit

__all__ = ["PrivateFit", "private_fit"]
