"""`python -m peerlearn`: the command."""

import sys

from peerlearn.cli import main

if __name__ == "__main__":
    sys.exit(main())
