"""One self-contained page from run folders. Needs matplotlib (``kilowait[report]``), and neither Numba nor torch."""

from kilowait.report.figures import need_matplotlib
from kilowait.report.page import RunSource, TrainingData, check_page, page, write_report

__all__ = ["RunSource", "TrainingData", "check_page", "need_matplotlib", "page", "write_report"]
