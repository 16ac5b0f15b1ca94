"""The rollout engine: grows one tree per prompt."""
