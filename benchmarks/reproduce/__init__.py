"""Other people's tables, and what kilowait makes of the same jobs beside them.

python -m benchmarks.reproduce rlscheduler | tsafrir | simulators | lets-wait-awhile | gaia
"""
