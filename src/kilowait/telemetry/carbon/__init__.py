"""Download of carbon intensity from web APIs into a file that ``--carbon`` reads."""

from kilowait.telemetry.carbon.api import ElectricityMaps, GreatBritain, Service, make_service, read_token
from kilowait.telemetry.carbon.fetch import FetchResult, fetch_carbon, follow_carbon
from kilowait.telemetry.carbon.http import HttpClient, check_base_url, default_cache

__all__ = [
    "HttpClient",
    "ElectricityMaps",
    "FetchResult",
    "GreatBritain",
    "Service",
    "check_base_url",
    "default_cache",
    "fetch_carbon",
    "follow_carbon",
    "make_service",
    "read_token",
]
