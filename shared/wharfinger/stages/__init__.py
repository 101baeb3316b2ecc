"""The decision logic of the services, without IO: one module or folder per stage, all pure.

A stage with a stream is a `kernel.decider.Decider`, one without is a `kernel.observer.Observer`.
Stages do not use Kafka, Postgres or a clock, and communicate only through events.
"""
