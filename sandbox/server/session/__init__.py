"""The session process: runs cells, forks itself, copies its files. Runs inside the sandbox."""
