"""What the ledger is asked, as JSON: the same answers for commands and for the HTTP API.

Values come from `wharfinger.history` and the ledger; here they get the form that programs read.
"""
