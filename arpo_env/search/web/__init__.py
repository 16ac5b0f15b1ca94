"""Web search services: one row per service, request formats, response parsing."""
