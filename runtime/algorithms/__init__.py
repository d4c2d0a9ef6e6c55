"""The algorithms that make the effect of each message happen exactly once, a folder each.

`state_based` replays duplicates on the version before their own; `outbox` keeps outputs and ids in the entity, in a
de-duplication store, or uses tokens; `documents` writes documents beside; `last_hop` sends to those that take part in
no transaction. `algorithm` is their interface, `choice` makes them by name.
"""
