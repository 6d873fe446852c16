"""Telemetry: power and energy samples of GPUs and processors, carbon intensity from web APIs, and energy of jobs.

`meters` samples a machine into files, `carbon` downloads carbon intensity, `labels` assigns sampled energy to the jobs
of a log.
"""
