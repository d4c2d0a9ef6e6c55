"""Message logs on Spark: read, normalised, identified by their content, and routed to streams."""
