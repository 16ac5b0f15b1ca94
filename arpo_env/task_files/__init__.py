"""Files of tasks: loaded for the interpreter, and read as text in child processes with limits."""
