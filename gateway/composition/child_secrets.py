"""Which variables of our environment are secrets that a child process has no use for. Starts none.

The engine runs other people's models and templates, the web UI faces browsers, the ledger's writer speaks to a
database: none of them ever calls a provider. Workers are gateways themselves and get everything.
"""

import os
import re
from collections.abc import Mapping
from typing import Final

from gateway.composition.deployment import ENVIRONMENT_ADDRESSES, WEBHOOK_VARIABLE
from gateway.config.settings import Settings
from gateway.from_litellm.fields import DATABASE_VARIABLE

_SECRET: Final = re.compile(
    r"(^|_)(KEYS?|APIKEY|SECRETS?|TOKENS?|PASSWORD|PASSWD|CREDENTIALS?|PEPPER)(_|$)", re.IGNORECASE
)
"""A word of a name as secrets are called everywhere: OPENAI_API_KEY_2, AWS_SESSION_TOKEN, BREAKEVEN_PEPPER."""
_OTHERS: Final = {"OTEL_EXPORTER_OTLP_HEADERS", "PGPASSWORD", WEBHOOK_VARIABLE, DATABASE_VARIABLE} | {
    name for _, name, _ in ENVIRONMENT_ADDRESSES
}
_DRIVERS: Final = "PG"
"""What PostgreSQL's driver reads where an address leaves it out, the password too."""


def secrets_in(settings: Settings, environ: Mapping[str, str] = os.environ) -> frozenset[str]:
    """By their names, and those that the configuration says hold keys, whatever they are called."""
    named = {key.env for block in settings.backends.values() for key in block.keys}
    named |= {block.api_key_env for block in settings.backends.values() if block.api_key_env}
    if settings.sign_in.oidc is not None:
        named.add(settings.sign_in.oidc.client_secret_env)
    return frozenset(name for name in environ if name in named or name in _OTHERS or _SECRET.search(name))


def writer_environment(settings: Settings, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Of the process that writes the ledger's rows."""
    secrets = secrets_in(settings, environ)
    return {name: value for name, value in environ.items() if name not in secrets or name.startswith(_DRIVERS)}
