"""Settings that trainings in tests share: in float32, with every step logged, and nothing saved or reported."""

from typing import Any

QUICK: dict[str, Any] = {"bf16": False, "gradient_checkpointing": False, "save_strategy": "no", "logging_steps": 1}
QUICK |= {"disable_tqdm": True}
ON_CPU = QUICK | {"use_cpu": True, "report_to": []}
