"""Publisher: the ledger is the outbox; this service relays it to Kafka, in order, each id once."""
