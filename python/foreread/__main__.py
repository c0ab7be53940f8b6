"""The command `foreread`: the same as the binary, in this interpreter. `python -m foreread` runs it too."""

from __future__ import annotations

import signal
import sys

from . import _native


def main() -> int:
    """Runs the command with the arguments of the process. Returns its exit code."""
    # Ctrl-C ends the command as it ends any other; commands that have something to put away first set it themselves.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return _native.command(["foreread", *sys.argv[1:]], [sys.executable, "-m", "foreread"], _native.__file__)


if __name__ == "__main__":
    sys.exit(main())
