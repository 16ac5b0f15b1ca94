"""Views of evaluations: a page of a run, a suite or a comparison, the same from a local server, text, and figures."""
