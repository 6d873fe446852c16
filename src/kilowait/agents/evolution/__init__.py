"""Evolution strategies: CMA-ES, its checkpoints, training windows and objectives."""
