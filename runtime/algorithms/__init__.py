"""The algorithms that process each message exactly once.

`algorithm` is their interface for single messages, and `choice` makes them by name.
"""
