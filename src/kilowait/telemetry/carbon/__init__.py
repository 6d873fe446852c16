"""Carbon intensity from services on the web: asked with patience, kept in a file that ``--carbon`` reads."""

from kilowait.telemetry.carbon.api import (
    ElectricityMaps,
    GreatBritain,
    Service,
    service_of,
    token_from,
)
from kilowait.telemetry.carbon.fetch import Fetched, fetch_carbon, follow_carbon
from kilowait.telemetry.carbon.http import Asking, checked_base, default_cache

__all__ = [
    "Asking",
    "ElectricityMaps",
    "Fetched",
    "GreatBritain",
    "Service",
    "checked_base",
    "default_cache",
    "fetch_carbon",
    "follow_carbon",
    "service_of",
    "token_from",
]
