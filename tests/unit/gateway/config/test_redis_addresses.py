import pytest

from gateway.config.redis_addresses import RedisAddress, parse_redis_url, split_redis_url


@pytest.mark.parametrize(
    "given",
    [
        "redis://h",
        "redis://h/",
        "redis://:p%40@[::1]:6379/3",
        "rediss://h:6379/0",
        "rediss://h?ssl_cert_reqs=none",
        "unix:///r?db=1",
    ],
)
def test_one_servers_is_taken_as_it_is(given: str) -> None:
    assert parse_redis_url(given) == given
    assert split_redis_url(given) == RedisAddress("one", given)


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        ("valkey://h:6379/0", "redis://h:6379/0"),
        ("valkeys://u:p,w@h", "rediss://u:p,w@h"),
        ("valkeys+cluster://h", "rediss+cluster://h"),
    ],
)
def test_valkey_is_called_as_redis_is(given: str, taken: str) -> None:
    assert parse_redis_url(given) == taken


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        (
            "redis+sentinel://a/mymaster",
            RedisAddress("sentinel", "redis://a/?", (("a", 26379),), "mymaster"),
        ),
        (
            "rediss+sentinel://u:p%2C,w@a:1,[::1]/my.master/3?ssl_ca_certs=/ca.pem&sentinel_password=p%26w",
            RedisAddress(
                "sentinel",
                "rediss://u:p%2C,w@a:1/3?ssl_ca_certs=%2Fca.pem",
                (("a", 1), ("::1", 26379)),
                "my.master",
                None,
                "p&w",
            ),
        ),
        (
            "redis+sentinel://a/m?sentinel_username=u&sentinel_password=p",
            RedisAddress("sentinel", "redis://a/?", (("a", 26379),), "m", "u", "p"),
        ),
        (
            "rediss+cluster://:p@a,b:7000/0?timeout=3",
            RedisAddress("cluster", "rediss://:p@a/0?timeout=3", (("a", 6379), ("b", 7000))),
        ),
        ("redis+cluster://a", RedisAddress("cluster", "redis://a/0?", (("a", 6379),))),
    ],
)
def test_sentinels_and_a_clusters_nodes_are_named_with_commas(given: str, meant: RedisAddress) -> None:
    assert parse_redis_url(given) == given
    assert split_redis_url(given) == meant


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("localhost:6379", "must begin with redis://"),
        ("redis://h/main", "number of a database"),
        ("redis://h?nope=1", "leave out nope"),
        ("redis://h?sentinel_password=p", "leave out sentinel_password"),
        (
            "redis://u:p@a:1,b:2/0",
            r"Sentinels as redis\+sentinel://.* nodes of a Redis Cluster as redis\+cluster",
        ),
        ("sentinel://h", r"write Sentinels as redis\+sentinel://"),
        ("redis-cluster://h", r"Redis Cluster as redis\+cluster://"),
        ("redis+sentinel://h:26379", "must say what the Sentinels call the primary"),
        ("redis+sentinel://h:26379/my master", "must say what the Sentinels call the primary"),
        ("redis+sentinel://h:26379/mymaster/main", "number of a database"),
        ("redis+cluster://h/1", "must name no database but 0"),
        ("redis+cluster://h?db=1", "must name no database but 0"),
        ("redis+cluster://h,,g", "names no host between two commas"),
        ("redis+sentinel://h,/mymaster", "names no host between two commas"),
    ],
)
def test_another_is_refused_with_what_to_write(given: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        parse_redis_url(given)


@pytest.mark.parametrize(
    "given",
    [
        "redis://u:p?ss@h:6379/0",
        "redis://u:p@ss@h:6379/0",
        "redis://:secret@[::1:6379/0",
        "redis://:secret@h:99999/0",
        "redis+cluster://:secret@h,g:99999",
        "redis+sentinel://u:p@ss@h/mymaster",
    ],
)
def test_what_no_client_could_read_is_refused_without_its_password(given: str) -> None:
    with pytest.raises(ValueError, match="write %40 for @") as caught:
        parse_redis_url(given)
    assert "secret" not in str(caught.value)
    assert "ss@" not in str(caught.value)
