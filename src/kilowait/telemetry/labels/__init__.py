"""Samples of machines laid over the jobs of a log: how much energy each job took."""

from kilowait.telemetry.labels.hostlists import expand_hosts
from kilowait.telemetry.labels.label_jobs import LabelledJobs, label_energy
from kilowait.telemetry.labels.samples import SampleFiles
from kilowait.telemetry.labels.split import Sharing

__all__ = ["LabelledJobs", "SampleFiles", "Sharing", "expand_hosts", "label_energy"]
