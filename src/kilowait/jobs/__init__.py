"""What a job is: before the clock runs (JobTable) and after (SegmentLog)."""

from kilowait.jobs.execution_log import JobRecords, NodeStates, ExecutionLog
from kilowait.jobs.table import JobTable

__all__ = ["JobRecords", "JobTable", "NodeStates", "ExecutionLog"]
