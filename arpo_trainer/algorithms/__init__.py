"""The four parts of an algorithm as plain functions and tables: budget, branching, advantage, loss."""
