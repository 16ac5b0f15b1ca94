"""Evaluation: suites of environments, models, stored episodes, metrics, re-scoring and comparisons."""
