"""The contract: every event that crosses a process, the topics they travel on, and how they are
read and written.

`envelope` is the CloudEvents frame, `streams` the table of topics, one module a topic holds its
events, `decisions` has one module a kind of decision, `registry` lists them, `codec` turns bytes
into events and back, `upcasts` reads old versions forever. What comes from the ledger has a list
and a codec of its own (`ledger_types`, `ledger_codec`), for those who relay it.
"""
