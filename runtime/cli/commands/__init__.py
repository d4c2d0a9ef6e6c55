"""The commands, one in each module. The docstring of a command is its help text."""
