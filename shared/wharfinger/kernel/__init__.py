"""How a stream is run: deciders, rounds, identity, hashing, and deciding again.

Pure. `decider` is what a stage must be, `round` what one step of a stream leaves behind, `hashing` the chain, `step` makes
a round out of inputs, `recover` brings a state back without deciding, `audit` decides again and compares.
"""
