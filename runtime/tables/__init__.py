"""Read states, versions, batches and dead letters of a store as Arrow tables."""

from runtime.errors import MissingExtraError

try:
    from runtime.tables.reader import read_batches, read_letters, read_state, read_versions
except ModuleNotFoundError as error:
    raise MissingExtraError(
        f"Reading a store as tables needs {error.name}: pip install 'consistent-messaging[sql]'."
    ) from error

__all__ = ["read_batches", "read_letters", "read_state", "read_versions"]
