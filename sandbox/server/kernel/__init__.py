"""What the server asks of the Linux kernel: system calls, Landlock, seccomp, processes. Runs inside the sandbox."""
