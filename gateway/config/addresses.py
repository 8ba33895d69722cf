"""Addresses in the configuration: their syntax, and advice when one is wrong. Pure."""

import re
from urllib.parse import urlsplit

OPENAI = "api.openai.com"
HTTP = re.compile(r"https?://\S+")
HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*|[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*(%[A-Za-z0-9._-]+)?")
"""A name, an IPv4 or an IPv6 address. Whether this machine has it shows when listening."""
SERVER = re.compile(r"([^@/]*@)?(?P<host>\[[0-9A-Fa-f:.]+\]|[^@:/\[\]]*)(:(?P<port>[0-9]{1,5}))?")
NO_SERVER = (
    "names no host and port that there can be, as in user:password@host:5432; in a user's name or password write %40 "
    "for @, %2F for / and %3F for ?"
)
"""Does not quote the text, which contains a password."""
PATH_PREFIX = re.compile(r"(/[A-Za-z0-9._~-]*[A-Za-z0-9_~-][A-Za-z0-9._~-]*)*/?")
"""No segment of dots alone: browsers resolve those as parent directories."""
BACKEND_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,39}")
SSL_MODE = re.compile(r"(^|&)sslmode=")
POSTGRESQL_OPTIONS = {"ssl", "host", "port", "prepared_statement_cache_size"}
"""What asyncpg accepts; other libpq options would end the start with a traceback."""
WRITABLE = re.compile(r"(^|&)target_session_attrs=(read-write|primary)(?=&|$)")
"""With several servers, the writable one is looked for anyway."""
OWN_AUTHORITY = "the file of your own certificate authority is named by PGSSLROOTCERT in the environment"
DATABASE_SCHEMES = {
    "sqlite": "sqlite+aiosqlite",
    "sqlite+aiosqlite": "sqlite+aiosqlite",
    "postgres": "postgresql+asyncpg",
    "postgresql": "postgresql+asyncpg",
    "postgresql+asyncpg": "postgresql+asyncpg",
}
"""Schemes that hosting companies use, and SQLAlchemy's."""


def parse_http_url(text: str) -> str:
    if text and not HTTP.fullmatch(text):
        raise ValueError("must begin with http:// or https:// and have no spaces, as in http://10.0.0.5:8000/v1")
    try:
        parts = urlsplit(text)
        names_host = bool(parts.hostname) and parts.port != 0
    except ValueError:  # unclosed brackets, or a port above 65535
        names_host = False
    if text and not names_host:
        raise ValueError("names no host, or a port that there is not; write it as in http://10.0.0.5:8000/v1")
    return text


def is_openais(url: str) -> bool:
    """Whether it is an address of OpenAI itself, in any region."""
    host = urlsplit(url).hostname or ""
    return host == OPENAI or host.endswith(f".{OPENAI}")


def parse_listening_host(text: str) -> str:
    """An empty host would listen on every address of this machine."""
    if not HOST.fullmatch(text):
        raise ValueError("must be an address of this machine: 127.0.0.1 for itself alone, 0.0.0.0 for its network")
    return text


def parse_path_prefix(text: str) -> str:
    """The path that a proxy puts before /ui; may be empty."""
    if not PATH_PREFIX.fullmatch(text) or f"{text}/".startswith("/ui/"):
        raise ValueError("must be a path as in /breakeven, which the proxy has put before /ui, and /ui cannot begin it")
    return text.rstrip("/")


def parse_backend_name(text: str) -> str:
    if not BACKEND_NAME.fullmatch(text):
        raise ValueError("must be a name of small letters, digits, dots and dashes, at most 40 of them, as in my-vllm")
    return text


def parse_database_url(text: str) -> str:
    """The URL with our driver and its name for `sslmode`. Raises ValueError."""
    scheme, separator, rest = text.partition("://")
    driver = DATABASE_SCHEMES.get(scheme)
    if driver is None or not separator or not rest:
        raise ValueError("must be postgresql://USER:PASSWORD@HOST/NAME or sqlite:////PATH/TO/FILE")
    address, question, options = rest.partition("?")
    options = SSL_MODE.sub(r"\1ssl=", options)
    if driver.startswith("postgresql"):
        options = WRITABLE.sub("", options).lstrip("&")
        question = "?" if options else ""
        if unknown := option_names(options) - POSTGRESQL_OPTIONS:
            own_authority = f"; {OWN_AUTHORITY}" if "sslrootcert" in unknown else ""
            raise ValueError(
                f"leave out {', '.join(sorted(unknown))}: only sslmode, host and port may follow the ?{own_authority}"
            )
        servers, slash, name = address.partition("/")
        user, at, hosts = servers.rpartition("@")
        for host in hosts.split(","):
            check_server(f"{user}{at}{host}")
        if "," in hosts:
            if "" in (host.partition(":")[0] for host in hosts.split(",")):
                raise ValueError(NO_SERVER)
            address, question = f"{user}{at}{slash}{name}", "?"
            options = _as_lists(hosts) + ("&" + options if options else "")
    return f"{driver}://{address}{question}{options}"


def _as_lists(hosts: str) -> str:
    """SQLAlchemy's form of `one:5432,other`, which it would take for a single host name."""
    found = [parts for host in hosts.split(",") if (parts := SERVER.fullmatch(host))]
    names = ",".join(parts["host"].strip("[]") for parts in found)
    return f"host={names}&port={','.join(parts['port'] or '5432' for parts in found)}"


def option_names(options: str) -> set[str]:
    """Option names in the query part. Raises ValueError if it is really the rest of a password that contains `?`."""
    names = {name.partition("=")[0] for name in options.split("&")} - {""}
    if not all(name.isidentifier() for name in names):
        raise ValueError(NO_SERVER)
    return names


def check_server(text: str) -> None:
    """Checks `user:password@host:port`. Raises ValueError."""
    found = SERVER.fullmatch(text)
    if found is None or not 0 < int(found["port"] or 1) <= 65535:
        raise ValueError(NO_SERVER)
