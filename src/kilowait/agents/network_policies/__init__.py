"""Networks as policies: adapters that run a trained network on batch systems, GPU clusters and clusters with power."""
