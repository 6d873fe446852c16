"""Comparisons of policies: windows, run matrix, cache of finished runs, and results."""
