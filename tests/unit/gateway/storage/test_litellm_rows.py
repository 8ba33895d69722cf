"""LiteLLM's DATABASE_URL converted to ours, without its driver's parameters."""

import pytest

from gateway.storage.litellm_rows import parse_litellm_url


@pytest.mark.parametrize(
    ("given", "url", "schema"),
    [
        ("postgresql://u:p%40w@h:5432/litellm", "postgresql+asyncpg://u:p%40w@h:5432/litellm", "public"),
        (
            "postgres://u:p@h/litellm?connection_limit=10&pool_timeout=60&sslmode=require&schema=proxy",
            "postgresql+asyncpg://u:p@h/litellm?ssl=require",
            "proxy",
        ),
        ("postgresql://u@/d?host=/tmp/x&pgbouncer=true", "postgresql+asyncpg://u@/d?host=/tmp/x", "public"),
    ],
)
def test_an_address(given: str, url: str, schema: str) -> None:
    found, its_schema = parse_litellm_url(given)
    assert (found.replace("%2F", "/"), its_schema) == (url, schema)


@pytest.mark.parametrize(
    "given", ["", "sqlite:///x", "mysql://u:hush@h/d", "postgresql://", "postgresql://u:hush@h:x/d"]
)
def test_what_is_none_is_refused_without_its_password(given: str) -> None:
    with pytest.raises(ValueError, match=r"postgresql://USER:PASSWORD|host and port") as refused:
        parse_litellm_url(given)
    assert "hush" not in str(refused.value)
    assert "sqlite" not in str(refused.value)
