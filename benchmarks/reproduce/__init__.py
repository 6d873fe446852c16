"""Reproduction of published result tables with kilowait on the same jobs, and kilowait's own result tables.

python -m benchmarks.reproduce rlscheduler | tsafrir | simulator-speed | lets-wait-awhile | gaia | ...
"""
