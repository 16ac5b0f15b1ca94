"""Records and replays the answers of external services: searches, pages, models and MCP servers."""
