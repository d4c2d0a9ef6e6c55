"""Message logs on Spark: read into one form, identified by their content, and routed to streams."""
