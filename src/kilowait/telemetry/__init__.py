"""Meters: power and energy of GPUs and processors, carbon intensity from services, and the energy of jobs from both.

`meters` samples a machine into files, `carbon` asks services, `labels` lays samples over the jobs of a log.
"""
