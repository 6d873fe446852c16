"""Self-contained HTML reports of run folders. Needs matplotlib (``kilowait[report]``), but neither Numba nor torch."""

from kilowait.report.figures import need_matplotlib
from kilowait.report.page import RunSource, TrainingData, check_page, page, write_report

__all__ = ["RunSource", "TrainingData", "check_page", "need_matplotlib", "page", "write_report"]
