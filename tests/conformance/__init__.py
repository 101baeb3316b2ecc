"""Recorded answers of the systems whose behaviour is taken over, asked of our own engine.

Nothing here decides: `karmada` turns their objects into our values and our answers into theirs,
`runner` compares.
"""
