#!/usr/bin/env bash
# ARPO on Qwen2.5-7B in verl's own trainer, on one node of 8 GPUs (docs/adapters/verl.md). Not run at this size.
# The numbers, and where they are from, are those of the recipe arpo-qwen2.5-7b-reasoning.
# Usage: [ALGORITHM=aepo MODEL=... OUT=...] verl_arpo.sh [trainer.total_epochs=1 ...]
set -euo pipefail
ALGORITHM=${ALGORITHM:-arpo}    # or aepo, tree-grpo, fork, ...: it grows the trees and gives the credit
MODEL=${MODEL:-Qwen/Qwen2.5-7B-Instruct}
OUT=${OUT:-runs/verl-$ALGORITHM}

mkdir -p "$OUT"
for split in train validation; do
    arpo data export arpo/Reasoning10K-v0 --format verl --output "$OUT/$split.parquet" --overwrite \
        --env-set split=$split protocol=arpo-tags prompt=paper max_tool_calls=3 max_turns=5 max_tokens=4096
done
cat > "$OUT/agent_loops.yaml" << END
- name: arpo_agent
  _target_: arpo_trainer.adapters.verl_agent_loop.ArpoAgentLoop
  rollout: {algorithm: $ALGORITHM, initial_rollouts: 8, branch_width: 2, branch_beta: 0.2, entropy_window: 20}
END
clip=vanilla
[ "$ALGORITHM" != aepo ] || clip=aepo

python -m verl.trainer.main_ppo \
    data.train_files="$OUT/train.parquet" \
    data.val_files="$OUT/validation.parquet" \
    data.train_batch_size=128 \
    data.max_prompt_length=1536 \
    data.max_response_length=4096 \
    algorithm.adv_estimator=arpo_tree \
    actor_rollout_ref.model.path="$MODEL" \
    actor_rollout_ref.model.external_lib=arpo_trainer.adapters.verl_credit \
    actor_rollout_ref.rollout.name=vllm \
    actor_rollout_ref.rollout.n=16 \
    actor_rollout_ref.rollout.temperature=1.0 \
    actor_rollout_ref.rollout.max_model_len=5632 \
    actor_rollout_ref.rollout.gpu_memory_utilization=0.7 \
    actor_rollout_ref.rollout.tensor_model_parallel_size=1 \
    actor_rollout_ref.rollout.agent.agent_loop_config_path="$OUT/agent_loops.yaml" \
    actor_rollout_ref.actor.policy_loss.loss_mode=$clip \
    actor_rollout_ref.actor.clip_ratio_c=1000 \
    actor_rollout_ref.actor.loss_agg_mode=token-mean \
    actor_rollout_ref.actor.ppo_mini_batch_size=16 \
    actor_rollout_ref.actor.use_dynamic_bsz=True \
    actor_rollout_ref.actor.ppo_max_token_len_per_gpu=11264 \
    actor_rollout_ref.actor.optim.lr=1e-6 \
    trainer.nnodes=1 \
    trainer.n_gpus_per_node=8 \
    trainer.total_epochs=2 \
    trainer.test_freq=5 \
    trainer.save_freq=5 \
    trainer.default_local_dir="$OUT" \
    "$@"
