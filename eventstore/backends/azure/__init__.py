"""Tables of Azure Table Storage, of Azurite, its emulator, and of Cosmos DB's Table API.

Requests are written here and sent through a pipeline of azure-core, which signs them, repeats them and
knows the transport's errors. The whole of a transaction is one request.
"""

from __future__ import annotations

from eventstore.backends.azure.store import AzureStore

__all__ = ["AzureStore"]
