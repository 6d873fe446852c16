"""What a run cost: exact accounts of energy, CO2 and money."""

from kilowait.energy.accounting.attribution import EnergyRow
from kilowait.energy.accounting.compute import account
from kilowait.energy.accounting.job_power import lower_bound_kwh
from kilowait.energy.accounting.node_states import STATES
from kilowait.energy.accounting.result import Accounts, Hourly, PowerBins

__all__ = ["STATES", "Accounts", "EnergyRow", "Hourly", "PowerBins", "account", "lower_bound_kwh"]
