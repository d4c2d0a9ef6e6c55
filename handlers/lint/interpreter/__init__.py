"""Statements, expressions and calls followed as Python would run them, with all values that they may have."""
