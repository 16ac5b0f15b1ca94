"""HTML pages about a run: the run report and the timeline of a rollout."""

from sandbox.moved_names import moved_members

__getattr__ = moved_members("arpo_trainer.report", "arpo_trainer.report.html_report")
