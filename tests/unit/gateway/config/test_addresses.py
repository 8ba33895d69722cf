import pytest

from gateway.config.addresses import parse_backend_name, parse_database_url, parse_http_url, parse_redis_url


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        ("postgresql+asyncpg://u:p@h/db", "postgresql+asyncpg://u:p@h/db"),
        ("postgres://u:p@h:5432/db", "postgresql+asyncpg://u:p@h:5432/db"),
        ("postgresql://u:p@h/db?sslmode=require", "postgresql+asyncpg://u:p@h/db?ssl=require"),
        ("postgresql:///db?host=/run/pg&sslmode=disable", "postgresql+asyncpg:///db?host=/run/pg&ssl=disable"),
        ("sqlite:////var/lib/b.db", "sqlite+aiosqlite:////var/lib/b.db"),
    ],
)
def test_a_database_is_named_as_hosting_companies_name_it(given: str, taken: str) -> None:
    assert parse_database_url(given) == taken


@pytest.mark.parametrize("given", ["mysql://h/db", "h/db", "postgresql:", "postgresql://", "postgresql+psycopg2://h/d"])
def test_another_database_is_refused_with_what_to_write(given: str) -> None:
    with pytest.raises(ValueError, match="must be postgresql://USER:PASSWORD@HOST/NAME or sqlite:"):
        parse_database_url(given)


def test_an_option_that_the_driver_does_not_know_is_named() -> None:
    with pytest.raises(ValueError, match="leave out channel_binding: only sslmode, host and port"):
        parse_database_url("postgresql://u:p@h/db?sslmode=require&channel_binding=require")


def test_what_redis_http_and_names_look_like() -> None:
    assert parse_redis_url("rediss://h:6379/0") == "rediss://h:6379/0"
    assert parse_http_url("") == ""
    assert parse_backend_name("my-vllm.2") == "my-vllm.2"
    for parse, wrong, says in (
        (parse_redis_url, "localhost:6379", "redis://host:6379/0"),
        (parse_http_url, "localhost:8000/v1", "must begin with http://"),
        (parse_backend_name, "My vLLM", "as in my-vllm"),
    ):
        with pytest.raises(ValueError, match=says):
            parse(wrong)
