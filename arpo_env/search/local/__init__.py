"""Search over local files: corpus, index folder, engines, snippets."""
