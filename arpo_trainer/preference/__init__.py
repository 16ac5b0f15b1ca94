"""Self-critic DPO (Tool-Star, arXiv 2505.16410): trajectories sampled, scored, paired, and learnt with `DPOTrainer`.

dpo({"model": "runs/mine/model", "env": "arpo/MultiHop-v0", "tasks": 64, "samples": 8, "output_dir": "runs/mine-dpo"})
"""
