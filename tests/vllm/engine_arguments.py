"""Arguments of `vllm serve` that suit the CPU build and a tiny model."""

COMMON = (
    "--distributed-executor-backend uni --enforce-eager --max-model-len 8192"
    " --kv-cache-memory-bytes 64M --max-num-seqs 128"
)
SOUND = f"{COMMON} --no-enable-chunked-prefill --max-num-batched-tokens 16384"
"""Without chunked prefill: on a CPU, a seeded request that is read in parts kills the engine."""

FRAGILE = f"{COMMON} --max-num-batched-tokens 4096"
"""With it: a seeded prompt above 4,096 tokens is a real crash of the engine."""
