"""Triton decides at import whether to interpret kernels, so those tests run only in child processes of
test_children.py."""

import os

collect_ignore = [
    folder
    for folder, variable in (("interpreted", "TRITON_INTERPRET"), ("compiled", "TRITON_COMPILE_OFFLINE"))
    if os.environ.get(variable) != "1"
]
