"""The four parts of an algorithm as plain functions and tables: budget, branching, advantage, loss."""

from sandbox.moved_names import moved_members

__getattr__ = moved_members("arpo_trainer.algorithms", "arpo_trainer.algorithms.registry")
