from collections.abc import Callable

import pytest

from gateway.config.addresses import (
    parse_backend_name,
    parse_database_url,
    parse_http_url,
    parse_listening_host,
    parse_path_prefix,
)


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        ("postgresql+asyncpg://u:p@h/db", "postgresql+asyncpg://u:p@h/db"),
        ("postgres://u:p@h:5432/db", "postgresql+asyncpg://u:p@h:5432/db"),
        ("postgresql://u:p@h/db?sslmode=require", "postgresql+asyncpg://u:p@h/db?ssl=require"),
        ("postgresql:///db?host=/run/pg&sslmode=disable", "postgresql+asyncpg:///db?host=/run/pg&ssl=disable"),
        ("postgresql://u:p@a:1,b:2/db", "postgresql+asyncpg://u:p@/db?host=a,b&port=1,2"),
        (
            "postgresql://u:p,w@a,[::1]:2/db?target_session_attrs=read-write&sslmode=require",
            "postgresql+asyncpg://u:p,w@/db?host=a,::1&port=5432,2&ssl=require",
        ),
        ("postgresql://u:p@h/db?target_session_attrs=primary", "postgresql+asyncpg://u:p@h/db"),
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
    with pytest.raises(ValueError, match=r"leave out sslrootcert: .*named by PGSSLROOTCERT in the environment"):
        parse_database_url("postgresql://u:p@h/db?sslmode=verify-full&sslrootcert=/etc/ca.crt")


@pytest.mark.parametrize("given", ["postgresql://u:p@a:1,/db", "postgresql://u:p@,b/db", "postgresql://a,b:70000/db"])
def test_of_several_servers_each_has_a_name_and_a_port_that_there_can_be(given: str) -> None:
    with pytest.raises(ValueError, match="names no host and port that there can be"):
        parse_database_url(given)


@pytest.mark.parametrize(
    ("given", "taken"), [("", ""), ("/", ""), ("/breakeven", "/breakeven"), ("/tools/breakeven/", "/tools/breakeven")]
)
def test_the_path_before_the_web_ui(given: str, taken: str) -> None:
    assert parse_path_prefix(given) == taken


@pytest.mark.parametrize("given", ["breakeven", "https://intranet/breakeven", "//x", "/a/../b", "/a b", "/ui", "/ui/x"])
def test_what_is_no_path_before_the_web_ui(given: str) -> None:
    with pytest.raises(
        ValueError,
        match="must be a path as in /breakeven",
    ):
        parse_path_prefix(given)


def test_what_http_and_names_look_like() -> None:
    assert parse_http_url("") == ""
    assert parse_backend_name("my-vllm.2") == "my-vllm.2"
    for parse, wrong, says in (
        (parse_http_url, "localhost:8000/v1", "must begin with http://"),
        (parse_backend_name, "My vLLM", "as in my-vllm"),
    ):
        with pytest.raises(ValueError, match=says):
            parse(wrong)


@pytest.mark.parametrize(
    "given", ["http://[::1]:8000/v1", "https://u:p@h", "http://bücher.example/v1", "http://h:65535"]
)
def test_an_http_address_names_a_host(given: str) -> None:
    assert parse_http_url(given) == given


@pytest.mark.parametrize(
    "given", ["http://[", "http://[::1", "http://h:99999", "http://h:0", "http://:80", "http:///v1"]
)
def test_one_that_nobody_can_call_is_refused_before_it_is_called(given: str) -> None:
    with pytest.raises(ValueError, match="names no host, or a port"):
        parse_http_url(given)


@pytest.mark.parametrize("given", ["http://a b", "http://"])
def test_one_with_a_space_or_nothing_is_refused(given: str) -> None:
    with pytest.raises(ValueError, match="must begin with http://"):
        parse_http_url(given)


@pytest.mark.parametrize(
    "given", ["127.0.0.1", "0.0.0.0", "::", "::1", "fe80::1%eth0", "::ffff:127.0.0.1", "gateway-1.internal"]
)
def test_where_it_may_listen(given: str) -> None:
    assert parse_listening_host(given) == given


@pytest.mark.parametrize("given", ["", " ", "\0", "http://a", "a:80/", "[::1]", "-x"])
def test_where_it_may_not_listen(given: str) -> None:
    with pytest.raises(ValueError, match="must be an address of this machine"):
        parse_listening_host(given)


@pytest.mark.parametrize(
    ("parse", "given"),
    [
        (parse_database_url, "postgresql://u:p@ss@h/db"),
        (parse_database_url, "postgresql://u:p/ss@h/db"),
        (parse_database_url, "postgresql://u:p?ss@h/db"),
        (parse_database_url, "postgresql://u:secret@h:port/db"),
        (parse_database_url, "postgresql://u:secret@h:99999/db"),
        (parse_database_url, "postgresql://u:secret@[::1:5432/db"),
    ],
)
def test_what_no_driver_could_read_is_refused_without_its_password(parse: Callable[[str], str], given: str) -> None:
    with pytest.raises(ValueError, match="write %40 for @") as caught:
        parse(given)
    assert "secret" not in str(caught.value)
    assert "ss@" not in str(caught.value)
