"""Follows statements, expressions and calls in the order in which Python would run them."""
