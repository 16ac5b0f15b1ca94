"""Tools: the interface, typed functions, Python, search, MCP servers, and the toolbox of an episode."""
