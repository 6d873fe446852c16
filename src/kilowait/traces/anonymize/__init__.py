"""Anonymization of job logs: pseudonyms, date shifts, generalization, and a k-anonymity check."""

from kilowait.traces.anonymize.anonymize import AnonymizedLog, anonymize, check_output_path, publish
from kilowait.traces.anonymize.column_rules import COLUMN_RULES, META_RULES
from kilowait.traces.anonymize.generalize import RoundingStep, parse_coarsening
from kilowait.traces.anonymize.k_anonymity import AnonymityCheck, check_k_anonymity
from kilowait.traces.anonymize.plan import AnonymizationPlan, make_plan, parse_names, parse_shift
from kilowait.traces.anonymize.pseudonyms import PseudonymKey, key_for, pseudonyms
from kilowait.traces.anonymize.suggest import SuggestedRule

__all__ = [
    "META_RULES",
    "COLUMN_RULES",
    "AnonymizedLog",
    "AnonymityCheck",
    "PseudonymKey",
    "AnonymizationPlan",
    "SuggestedRule",
    "RoundingStep",
    "anonymize",
    "check_k_anonymity",
    "key_for",
    "make_plan",
    "parse_coarsening",
    "parse_names",
    "parse_shift",
    "pseudonyms",
    "publish",
    "check_output_path",
]
