"""The laboratory: small training runs of many algorithms, seeds and environments, and comparisons at equal cost."""
