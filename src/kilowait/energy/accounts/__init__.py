"""What a run cost: exact accounts of energy, CO2 and money."""

from kilowait.energy.accounts.accounting import account
from kilowait.energy.accounts.accounts import Accounts, Hourly, PowerBins
from kilowait.energy.accounts.shares import EnergyRow
from kilowait.energy.accounts.states import STATES
from kilowait.energy.accounts.watts import lower_bound_kwh

__all__ = ["STATES", "Accounts", "EnergyRow", "Hourly", "PowerBins", "account", "lower_bound_kwh"]
