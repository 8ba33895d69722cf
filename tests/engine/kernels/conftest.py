"""Triton decides at import whether it interprets, so those tests run in children of test_children.py and nowhere
else."""

import os

collect_ignore = [
    folder
    for folder, variable in (("interpreted", "TRITON_INTERPRET"), ("compiled", "TRITON_COMPILE_OFFLINE"))
    if os.environ.get(variable) != "1"
]
