"""Adapters that need the rollout engine: environments and trees in the agent loops of other trainers."""
