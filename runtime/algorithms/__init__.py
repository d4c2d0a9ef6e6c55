"""The algorithms that make the effect of each message happen exactly once, one module each.

`state_based` replays duplicates on the version before their own; `outbox` keeps outputs and ids in the entity;
`outbox_with_deduplication_store` moves the ids to a store; `token_based` needs no ids but tokens;
`prepare_commit_publish` writes documents beside. `algorithm` is their interface, `choice` makes them by name.

`delivery` is for the last hop, to senders that take part in no transaction.
"""
