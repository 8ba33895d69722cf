import pytest


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever imports LiteLLM: it asks for its newest prices otherwise."""
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")
