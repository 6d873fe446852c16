"""How well the run times of a log were foretold, where not, and what predictions are made from."""
