"""Samples to read, run and copy from."""
