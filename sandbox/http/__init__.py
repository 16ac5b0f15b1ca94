"""HTTP servers: sessions for other machines, SandboxFusion's endpoint, and the JSON server under them."""
