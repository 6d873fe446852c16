"""Energy of jobs: the energy sampled on nodes, assigned to the jobs of a log."""

from kilowait.telemetry.labels.job_locations import expand_hosts
from kilowait.telemetry.labels.label_jobs import LabelledJobs, label_energy
from kilowait.telemetry.labels.node_energy import EnergySplit
from kilowait.telemetry.labels.sample_reader import SampleFiles

__all__ = ["LabelledJobs", "SampleFiles", "EnergySplit", "expand_hosts", "label_energy"]
