"""Where a sandbox server is started: Docker, bubblewrap, a plain subprocess, or a server elsewhere by HTTP."""
