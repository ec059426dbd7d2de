#!/bin/bash
# Three nodes of eight GPUs: the first serves rollouts and the judge, the other two train.
#   sbatch training/configs/slurm-3nodes.sh
#SBATCH --nodes=3
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
set -euo pipefail
mapfile -t NODES < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
SERVER=${NODES[0]} HEAD=${NODES[1]}
MODEL=${MODEL:-Qwen2.5-3B-Instruct}
SHARDS=${SHARDS:-fsdp2} # or deepspeed

on_server() { srun --nodes=1 --ntasks=1 --overlap --nodelist="$SERVER" "$@"; }
on_server env CUDA_VISIBLE_DEVICES=0 gpu/bin/trl vllm-serve --model "$MODEL" --host 0.0.0.0 &
on_server env CUDA_VISIBLE_DEVICES=1 gpu/bin/vllm serve "$MODEL" --host 0.0.0.0 --port 8001 &
trap 'kill $(jobs -p)' EXIT
until curl -sf "http://$SERVER:8001/health" >/dev/null; do sleep 5; done

# SLURM_NODEID is that of each of the two within this step.
export SERVER HEAD SHARDS
srun --nodes=2 --ntasks=2 --overlap --nodelist="${NODES[1]},${NODES[2]}" bash -c '
  gpu/bin/accelerate launch --config_file training/configs/accelerate-$SHARDS-2nodes.yaml \
    --main_process_ip "$HEAD" --machine_rank "$SLURM_NODEID" \
    -m training.grpo --config training/configs/qwen2.5-3b-8gpu.yaml \
    --vllm_server_host "$SERVER" --judge "http://$SERVER:8001" --gradient_accumulation_steps 2'
