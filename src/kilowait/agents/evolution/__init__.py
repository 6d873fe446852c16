"""What all searches of weights share: CMA-ES, its course in a file, windows to try on, what a run is worth."""
