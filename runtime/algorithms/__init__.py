"""The algorithms that process each message exactly once, a folder each.

`state_based` replays a duplicate on the version before its own. `outbox` stores outputs with the state, and recognises
a duplicate by its id in the entity, by its id in a de-duplication store, or by its token. `algorithm` is the interface
of single messages, `choice` makes algorithms by name.
"""
