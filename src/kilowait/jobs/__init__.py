"""Job data: the input of a simulation (JobTable) and its result (ExecutionLog)."""

from kilowait.jobs.execution_log import ExecutionLog, JobRecords, NodeStates
from kilowait.jobs.table import JobTable

__all__ = ["JobRecords", "JobTable", "NodeStates", "ExecutionLog"]
