"""kilowait: energy- and carbon-aware job scheduling for batch systems."""
__version__ = "0.1.0"
