"""Pages and figures from results and logs. Needs matplotlib (``kilowait[report]``), and neither Numba nor torch."""

from kilowait.report.content import Curve, Duel, Report, Result
from kilowait.report.page import page, write_page

__all__ = ["Curve", "Duel", "Report", "Result", "page", "write_page"]
