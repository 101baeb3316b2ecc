"""The contract: every event that crosses a process, the topics they travel on, and how they are read and written.

`envelope` is the CloudEvents frame, `streams` the table of topics, one module a topic holds its events, `registry`
lists them, `codec` turns bytes into events and back, `upcasts` reads old versions for ever.
"""
