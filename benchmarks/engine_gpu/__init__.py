"""The engine on one GPU against that GPU's limits, and against transformers' continuous batching.

    python -m benchmarks.engine_gpu --json [--output PATH] [--budget-seconds 540] [--models qwen3-0.6b llama-3.1-8b]

The copy bandwidth and the bfloat16 matrix rate are measured in the same run, and every ceiling is computed from them.
Both sides have the same random weights. Besides this repository it needs only torch, triton, transformers and their
dependencies.
"""
