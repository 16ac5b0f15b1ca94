"""Docker engines: whether one can be used, how it is reached, and which containers of sandboxes are left on it."""
