"""The rollout engine: plays each prompt as a tree of trajectories."""
