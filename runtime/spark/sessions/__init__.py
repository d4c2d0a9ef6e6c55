"""Spark sessions: the search for Java, sessions that need nothing from the shell, their tasks and their failures."""
