"""`python -m runtime` is the command `consistent`."""

from runtime.cli import main

main()
