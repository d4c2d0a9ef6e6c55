"""The targets that outputs can be published to, one in each module; `choice` finds the one that a url names."""
