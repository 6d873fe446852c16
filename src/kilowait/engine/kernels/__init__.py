"""Compiled kernels of the engine, on numbers and arrays only."""
