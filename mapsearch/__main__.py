"""`python -m mapsearch` is the command line."""

import sys

from mapsearch.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
