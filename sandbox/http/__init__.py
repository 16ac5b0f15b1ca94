"""HTTP servers: the SandboxFusion-compatible endpoint and the JSON server under it."""
