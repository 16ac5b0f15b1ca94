"""Statistics of evaluations on plain numbers: pass@k, 95 % intervals, paired comparisons, agreement of graders."""
