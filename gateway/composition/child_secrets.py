"""Environment variables with secrets that child processes do not need. Starts none.

The engine runs other people's models and templates, the web UI faces browsers, the ledger's writer talks to a database:
none of them calls a provider. Workers are gateways themselves and get everything.
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
"""Words that mark secrets in variable names: OPENAI_API_KEY_2, AWS_SESSION_TOKEN, BREAKEVEN_PEPPER."""
_OTHERS: Final = {"OTEL_EXPORTER_OTLP_HEADERS", "PGPASSWORD", WEBHOOK_VARIABLE, DATABASE_VARIABLE} | {
    name for _, name, _ in ENVIRONMENT_ADDRESSES
}
_DRIVERS: Final = "PG"
"""Read by PostgreSQL's driver for what an address omits, the password included."""


def secrets_in(settings: Settings, environ: Mapping[str, str] = os.environ) -> frozenset[str]:
    """Names that look like secrets, plus those that the configuration names as holding keys."""
    named = {key.env for block in settings.backends.values() for key in block.keys}
    named |= {block.api_key_env for block in settings.backends.values() if block.api_key_env}
    if settings.sign_in.oidc is not None:
        named.add(settings.sign_in.oidc.client_secret_env)
    return frozenset(name for name in environ if name in named or name in _OTHERS or _SECRET.search(name))


def writer_environment(settings: Settings, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The environment of the process that writes the ledger's rows."""
    secrets = secrets_in(settings, environ)
    return {name: value for name, value in environ.items() if name not in secrets or name.startswith(_DRIVERS)}
