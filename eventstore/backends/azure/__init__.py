"""Tables of Azure Table Storage, of Azurite, its emulator, and of Cosmos DB's Table API.

It stands on azure-data-tables, whose client signs requests, repeats them and makes tables. What is asked of a
table is written here and sent through that client's pipeline; the whole of a transaction is one request.
"""

from __future__ import annotations

from eventstore.backends.azure.store import AzureStore

__all__ = ["AzureStore"]
