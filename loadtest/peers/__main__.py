"""Installs the peers: ``python -m loadtest.peers [DIRECTORY]``; ends with 3 and the reason if one cannot run here."""

import argparse
import sys
from pathlib import Path

from loadtest.peers.install import UnavailableError, install_perf_analyzer, install_triton

UNAVAILABLE = 3
"""Exit status; unlike that of a defect."""


def main() -> int:
    """Install all that this machine can run."""
    parser = argparse.ArgumentParser(prog="python -m loadtest.peers", description=__doc__)
    parser.add_argument("directory", nargs="?", type=Path, default=Path(".peers"))
    home = parser.parse_args().directory.absolute()
    failures = 0
    for install in (install_triton, install_perf_analyzer):
        try:
            said = f"installed: {install(home)}"
        except UnavailableError as error:
            said, failures = f"not available: {error}", failures + 1
        sys.stdout.write(f"{said}\n")
    return UNAVAILABLE if failures else 0


if __name__ == "__main__":
    sys.exit(main())
