# Anything: reading the package for its types is dear (see stubPath in pyproject.toml).
from typing import Any

def __getattr__(name: str) -> Any: ...
