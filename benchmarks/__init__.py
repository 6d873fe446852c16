"""Benchmarks and long-running checks that are started manually."""
