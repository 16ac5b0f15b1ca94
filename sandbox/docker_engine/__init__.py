"""Access to Docker engines: whether they can be used, tunnels to remote ones, attached streams, administration."""
