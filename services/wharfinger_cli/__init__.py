"""The `wharfinger` command: starts the plane, tells it things, asks it things.

`app` lists the commands, one module a group of them implements it. A command parses its arguments, calls the library and
renders what comes back (`output`); it decides nothing. What can go wrong in the world is one line and exit code 2
(`failures`). Modules are imported when their command runs, so that `wharfinger --help` stays quick.
"""
