"""What the ledger can be asked, as an API: the commands are thin over these modules, and programs may use them directly.

Every function takes an open `runtime.ledger.Ledger` and returns frozen values. Asking writes nothing; what changes the
plane (`plan.apply`, `rollback`, `propose`) does so by handing requests to the intake, where everybody else hands in theirs.

`deciders` says who decides which stream, `states` brings any stream to any point of its history.
"""
