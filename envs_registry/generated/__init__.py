"""Generated tasks: arithmetic, and multi-hop questions over an invented world."""
