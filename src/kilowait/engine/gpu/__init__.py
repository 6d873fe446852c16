"""Simulation engine of node-level (GPU) clusters; docs/gpu-engine.md describes it."""
