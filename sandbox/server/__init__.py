"""The server that runs inside the container: supervisor, zygotes and sessions. Standard library only, Python 3.9.

Only `bundle` and `wire` are imported by the client. `bundle` sends the text of the other modules, and of `wire`, to
the sandbox, where they have the same names.
"""
