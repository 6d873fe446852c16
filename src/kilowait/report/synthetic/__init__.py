"""How like a synthetic workload is to the real one, and what it gives away."""
