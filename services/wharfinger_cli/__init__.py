"""The `wharfinger` command: starts the plane, applies manifests and facts, shows the results.

`app` lists the commands; each group of commands is implemented by one module. A command parses its
arguments, calls the library and renders the result (`output`); it decides nothing. An expected
failure is one line and exit code 2 (`failures`). Modules are imported when their command runs, so
that `wharfinger --help` stays quick.
"""
