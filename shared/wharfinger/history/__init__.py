"""What the ledger can be asked, as an API: the commands are thin over these modules, and programs
may use them directly.

Every function takes an open `runtime.ledger.Ledger` and returns frozen values. Asking writes
nothing; what changes the plane (`plan.apply`, `rollback.apply_rollback`, `propose.propose`) does so
by handing requests to the intake, where everybody else hands in theirs, and
`retention.retire_before` takes old history away.

- where and when: `points` (how a place in history is said), `states` (any stream at any point, a
  world begun there), `names`
- is it true: `verification`, `checkpoint`, `topic_check`; `runtime.replay` decides again and
  compares
- why: `explain`; what happened: `timeline`, `lineage`; what was: `plane_at`, `diff`
- what would happen: `plan` over `planning`, `rollback`
- what would have happened: `whatif` with `changes`, `run_metrics`, `compare`, `prices`; shown by
  `report`, `plots`; taken up by `propose`
- take it along or let it go: `export` with `export_file`, `redaction`, `renaming`; `retention`

`deciders` says who decides which stream.
"""
