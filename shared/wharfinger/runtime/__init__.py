"""Everything that touches the outside world on behalf of the pure code below: broker, database,
clock, files, HTTP.

Read in this order: `settings` (what was asked for), `backends` (what there is), `embedded` (how it
is started when there is none), `topics`, `faust_app` and `broadcast` (how events come in),
`log_setup`, `observability` and `health` (how we are seen).
"""
