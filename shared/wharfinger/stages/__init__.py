"""What the services think, without the services: one module or folder a stage, each pure.

A stage with a stream is a `kernel.decider.Decider`, one without is a `kernel.observer.Observer`. Stages know neither Kafka
nor Postgres nor the clock; they know each other only through events.
"""
