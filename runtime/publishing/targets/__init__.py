"""The targets of outputs, one in each module. `choice` finds a target by its URL."""
