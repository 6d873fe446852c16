"""``python -m kilowait.cli``: the same as ``kilowait``, where the script is not on the path."""

import sys

from kilowait.cli import main

if __name__ == "__main__":
    sys.exit(main())
