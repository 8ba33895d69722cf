"""Kernels for one GPU, each beside a plain torch reference; nothing here is imported while the engine serves on a CPU.

Every module but `reference` and `launch` imports triton at the top, so import a kernel's module only after a CUDA
device has been chosen.
"""
