"""Entry point of `python -m runtime`, the command `consistent`."""

from runtime.cli import main

main()
