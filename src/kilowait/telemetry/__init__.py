"""Telemetry: power and energy samples of GPUs and processors, carbon intensity from web APIs, and energy of jobs.

`sampler` reads the `meters` of a machine, and `recorder` writes the samples into files; `carbon` downloads carbon
intensity; `labels` assigns sampled energy to the jobs of a log.
"""
