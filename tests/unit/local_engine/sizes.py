"""Sizes for plans of memory."""

from dataclasses import replace

from benchmarks.engine_gpu import shapes

GIB = 1024**3
LLAMA_8B = replace(shapes.LLAMA_8B, name="llama-8b", context_window=131_072)
