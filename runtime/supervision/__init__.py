"""Supervision: calls of handlers that may hang, die or take all memory, and cost no other message its outcome."""
