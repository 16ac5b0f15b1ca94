"""Files of a session: given at the start, uploaded, downloaded, listed."""
