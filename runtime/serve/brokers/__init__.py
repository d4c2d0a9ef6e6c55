"""The brokers that messages come from and outputs go to, one in each module."""
