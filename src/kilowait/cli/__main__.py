"""``python -m kilowait.cli`` is the same as ``kilowait``, for when the script is not on the path."""

import sys

from kilowait.cli import main

if __name__ == "__main__":
    sys.exit(main())
