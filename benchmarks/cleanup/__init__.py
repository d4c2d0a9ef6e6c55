"""Truncation of tables with very many streams: `make cleanup`."""
