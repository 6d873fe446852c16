"""Self-contained HTML reports of run folders.

They need matplotlib and Jinja2 (``kilowait[report]``), but neither Numba nor torch.
"""

from kilowait.report.data.training import TrainingData
from kilowait.report.figures import need_matplotlib
from kilowait.report.folders import RunSource
from kilowait.report.page import check_page, page, write_report

__all__ = ["RunSource", "TrainingData", "check_page", "need_matplotlib", "page", "write_report"]
