"""``python -m gateway`` is the command `shoal`."""

from gateway.cli import main

main()
