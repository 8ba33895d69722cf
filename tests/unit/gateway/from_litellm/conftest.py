import pytest


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keeps LiteLLM, when imported, from downloading its latest prices."""
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")
