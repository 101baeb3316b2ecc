"""The HTTP API: what the ledger can be asked, over HTTP. Reads PostgreSQL only."""
