"""The algorithms that make the effect of each message happen exactly once, one module each.

`state_based` replays duplicates on the version before their own; `outbox` keeps outputs and ids in the entity;
`outbox_with_deduplication_store` moves the ids to a store; `token_based` needs no ids but tokens. `algorithm` is their
interface, `choice` makes them by name.
"""
