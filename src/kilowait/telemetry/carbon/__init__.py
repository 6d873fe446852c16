"""Carbon intensity from services on the web: asked with patience, kept in a file that ``--carbon`` reads."""

from kilowait.telemetry.carbon.asking import Asking, checked_base, default_cache
from kilowait.telemetry.carbon.fetching import Fetched, fetch_carbon, follow_carbon
from kilowait.telemetry.carbon.services import ElectricityMaps, GreatBritain, Service, service_of, token_from

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
