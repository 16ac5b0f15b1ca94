"""What runs inside the sandbox: the supervisor, the zygote and the sessions; standard library only, Python 3.9.

Nothing here is imported by the client. `sandbox.server_source` sends the text of these modules, and of `sandbox.wire`,
to the sandbox, where they bear the same names.
"""
