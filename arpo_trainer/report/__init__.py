"""HTML pages about a run: the run report and the timeline of a rollout."""
