"""How a stream is run: deciders, rounds, ids, the hash chain, recovery and replay.

Pure. `decider` is the interface of a stage, `round` the record of one step, `hashing` the chain,
`step` makes a round from inputs, `recover` restores a state without deciding, `audit` decides again
and compares.
"""
