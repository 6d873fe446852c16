"""Report sections on synthetic workloads: similarity to the real workload, and privacy."""
