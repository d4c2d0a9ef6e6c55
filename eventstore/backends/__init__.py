"""The implementations of the table port, one in each module, alike error by error."""
