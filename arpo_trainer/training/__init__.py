"""`ARPOTrainer` on top of TRL: configuration, hooks, losses, rewards, evaluation and checkpoints."""
