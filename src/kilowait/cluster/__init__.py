"""What jobs run on: node groups, queues, outages, levers, and presets of known machines."""

from kilowait.cluster.cluster import (
    Cluster,
    NodeGroup,
    Outage,
    Reservation,
)
from kilowait.cluster.power_controls import PowerControls, SleepPolicy

__all__ = ["Cluster", "PowerControls", "NodeGroup", "Outage", "Reservation", "SleepPolicy"]
