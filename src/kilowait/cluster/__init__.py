"""What jobs run on: node groups, queues, outages, and presets of known machines."""

from kilowait.cluster.machine import Cluster, NodeGroup, Outage, Reservation

__all__ = ["Cluster", "NodeGroup", "Outage", "Reservation"]
