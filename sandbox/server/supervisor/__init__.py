"""The supervisor process: requests, session creation, limits, file transfer. Runs inside the sandbox."""
