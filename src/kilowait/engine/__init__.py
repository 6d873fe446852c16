"""Simulation engine: events in a total order, one scheduling pass per instant, compiled by Numba."""
