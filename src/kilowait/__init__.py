"""kilowait: energy- and carbon-aware job scheduling for batch systems."""
__version__ = "0.1.0"
def __getattr__(name):
    if name=="simulate":
        from kilowait.policies import simulate
        return simulate
    raise AttributeError(name)
