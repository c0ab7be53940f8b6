"""The command `foreread`. It runs the same code as the binary, in this interpreter; `python -m foreread` runs it too."""

from __future__ import annotations

import signal
import sys

from . import _native


def main() -> int:
    """Runs the command with the arguments of this process. Returns its exit code."""
    # Ctrl-C ends the command like any other program; commands that must clean up first set their own handler.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return _native.command(["foreread", *sys.argv[1:]], [sys.executable, "-m", "foreread"], _native.__file__)


if __name__ == "__main__":
    sys.exit(main())
