"""Addresses of Redis in the configuration: of one server, of Sentinels, or of a cluster's nodes. Pure."""

import re
from dataclasses import dataclass
from typing import Final, Literal
from urllib.parse import parse_qs, urlencode

from gateway.config.addresses import SERVER, check_server, option_names

VALKEY = re.compile(r"^valkey(s?)(?=(\+[a-z]+)?://)")
"""Hosting companies write Valkey's addresses so; it speaks Redis' protocol, but redis-py knows only Redis' schemes."""
REDIS = re.compile(r"((redis|rediss|unix)|rediss?\+(sentinel|cluster))://.+")
DATABASE = re.compile(r"[0-9]*")
SENTINELS_NAME = re.compile(r"[A-Za-z0-9._-]+")
OPTIONS: Final = (
    *("db", "protocol", "client_name", "health_check_interval", "max_connections"),
    *("timeout", "socket_timeout", "socket_connect_timeout", "socket_keepalive"),
    *("ssl_cert_reqs", "ssl_ca_certs", "ssl_ca_path", "ssl_certfile", "ssl_keyfile", "ssl_check_hostname"),
)
"""redis-py's options that an operator may need. Unknown ones would end the start with a traceback."""
SENTINEL_OPTIONS: Final = ("sentinel_username", "sentinel_password")
MANY = re.compile(r"[a-z+-]*(sentinel|cluster)[a-z+-]*://")
HOW_MANY = (
    "names several servers in a way of its own: write Sentinels as redis+sentinel://host1:26379,host2:26379/mymaster/0 "
    "and nodes of a Redis Cluster as redis+cluster://host1:6379,host2:6379, over TLS with rediss+"
)
PORTS: Final = {"sentinel": 26379, "cluster": 6379}


@dataclass(frozen=True, slots=True)
class RedisAddress:
    """`url` is redis-py's for one server. With Sentinels, `servers` are these, and `primary` is what they call the
    server that is meant; with a cluster, `servers` are some of its nodes. Both say where `url` leads to."""

    kind: Literal["one", "sentinel", "cluster"]
    url: str
    servers: tuple[tuple[str, int], ...] = ()
    primary: str = ""
    sentinel_username: str | None = None
    sentinel_password: str | None = None


def parse_redis_url(text: str) -> str:
    """The text with Redis' scheme for Valkey's. Raises ValueError."""
    text = VALKEY.sub(lambda found: "rediss" if found[1] else "redis", text)
    split_redis_url(text)
    return text


def split_redis_url(text: str) -> RedisAddress:
    """Raises ValueError."""
    if not REDIS.fullmatch(text):
        raise ValueError(
            HOW_MANY if MANY.match(text) else "must begin with redis:// or rediss://, as in redis://host:6379/0"
        )
    scheme, _, rest = text.partition("://")
    scheme, _, kind = scheme.partition("+")
    address, _, options = rest.partition("?")
    known = (*OPTIONS, *(SENTINEL_OPTIONS if kind == "sentinel" else ()))
    if unknown := option_names(options).difference(known):
        raise ValueError(f"leave out {', '.join(sorted(unknown))}: only {', '.join(known)} may follow the ?")
    if scheme == "unix":
        return RedisAddress("one", text)
    server, _, path = address.partition("/")
    user, at, hosts = server.rpartition("@")
    for host in hosts.split(","):
        check_server(f"{user}{at}{host}")
    if kind == "sentinel":
        return _by_sentinels(scheme, user + at, hosts, path, options)
    if kind == "cluster":
        return _by_cluster(scheme, user + at, hosts, path, options)
    if "," in hosts:
        raise ValueError(HOW_MANY)
    _check_database(path)
    return RedisAddress("one", text)


def _by_sentinels(scheme: str, user: str, hosts: str, path: str, options: str) -> RedisAddress:
    primary, _, database = path.partition("/")
    if not SENTINELS_NAME.fullmatch(primary):
        raise ValueError(
            "must say what the Sentinels call the primary, as mymaster in redis+sentinel://host1:26379,host2/mymaster/0"
        )
    _check_database(database)
    servers = _servers(hosts, PORTS["sentinel"])
    asked = {name: values[0] for name, values in parse_qs(options).items()}
    username, password = (asked.pop(name, None) for name in SENTINEL_OPTIONS)
    url = f"{scheme}://{user}{hosts.partition(',')[0]}/{database}?{urlencode(asked)}"
    return RedisAddress("sentinel", url, servers, primary, username, password)


def _by_cluster(scheme: str, user: str, hosts: str, path: str, options: str) -> RedisAddress:
    if path not in {"", "0"} or parse_qs(options).get("db", ["0"]) != ["0"]:
        raise ValueError("must name no database but 0, as a cluster has no other: redis+cluster://host:6379,host2:6379")
    url = f"{scheme}://{user}{hosts.partition(',')[0]}/0?{options}"
    return RedisAddress("cluster", url, _servers(hosts, PORTS["cluster"]))


def _servers(hosts: str, port: int) -> tuple[tuple[str, int], ...]:
    found = [parts for host in hosts.split(",") if (parts := SERVER.fullmatch(host)) and parts["host"]]
    if len(found) < hosts.count(",") + 1:
        raise ValueError("names no host between two commas, or before or after one")
    return tuple((parts["host"].strip("[]"), int(parts["port"] or port)) for parts in found)


def _check_database(text: str) -> None:
    if not DATABASE.fullmatch(text):
        raise ValueError("ends with the number of a database or with none, as in redis://host:6379/0")
