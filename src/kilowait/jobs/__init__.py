"""What a job is: before the clock runs (JobTable) and after (ExecutionLog)."""

from kilowait.jobs.execution_log import ExecutionLog, JobRecords, NodeStates
from kilowait.jobs.table import JobTable

__all__ = ["JobRecords", "JobTable", "NodeStates", "ExecutionLog"]
