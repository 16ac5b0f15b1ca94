"""Settings of a sandbox: limits, pool size, and what the server is started with."""
