"""The commands, one in each module. What a command's docstring says is its help text."""
