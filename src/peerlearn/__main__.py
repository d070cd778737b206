"""The command, also as `python -m peerlearn`."""

import signal
import sys


def main() -> int:
    """Run the command.

    Until a run is under way, which can be stopped and saved, Ctrl-C ends the process at once:
    inside an import it would leave a library half imported.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    from peerlearn.cli import main as command

    return command()


if __name__ == "__main__":
    sys.exit(main())
