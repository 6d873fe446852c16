"""What jobs run on: node groups, queues, outages, levers, and presets of known machines."""

from kilowait.cluster.levers import Levers, Sleeping
from kilowait.cluster.machine import Cluster, NodeGroup, Outage, Reservation

__all__ = ["Cluster", "Levers", "NodeGroup", "Outage", "Reservation", "Sleeping"]
