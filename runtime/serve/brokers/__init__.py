"""The brokers that messages come from and outputs go to, one per module."""
