"""Linux interfaces of the server: system calls, Landlock, seccomp, processes. Runs inside the sandbox."""
