"""Maintenance of tables: consistency checks, statistics, retention policies, and erasing business objects."""
