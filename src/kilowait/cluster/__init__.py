"""Clusters: node groups, queues, outages, power controls, and presets of known machines."""

from kilowait.cluster.cluster import Cluster, NodeGroup, Outage, Reservation
from kilowait.cluster.power_controls import PowerControls, SleepPolicy

__all__ = ["Cluster", "PowerControls", "NodeGroup", "Outage", "Reservation", "SleepPolicy"]
