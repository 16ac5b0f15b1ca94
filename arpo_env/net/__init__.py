"""HTTP towards services: time limits, retries, rate limits, redaction of keys, a chat client."""
