"""URLs from LiteLLM's file with credentials removed, since none should be in our files. Pure."""

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import SplitResult, parse_qsl, urlsplit

SECRET_PARAMETERS: Final = re.compile(
    r"key|secret|token|password|credential|signature|^sig$|^code$|^auth", re.IGNORECASE
)
KEY_PARAMETERS: Final = frozenset({"api-key", "api_key", "apikey", "key"})
"""Query parameters in which some servers take a key, instead of a header."""


@dataclass(frozen=True, slots=True)
class Address:
    """`url` has no credentials, `bare` no parameters either; `secrets` and `parameters` are names without values."""

    url: str
    bare: str
    has_user: bool = False
    secrets: tuple[str, ...] = ()
    parameters: tuple[str, ...] = ()

    @property
    def has_key(self) -> bool:
        """Whether one of its secrets is a key, which can be sent as the backend's key instead."""
        return any(name.lower() in KEY_PARAMETERS for name in self.secrets)


def read_address(text: str) -> Address:
    """Text that is not a URL stays unchanged, for its reader to report, unless it may contain a password."""
    try:
        parts = urlsplit(text.strip())
    except ValueError:  # brackets that do not close
        kept = text.rpartition("@")[2].partition("?")[0]
        return Address(kept, kept, has_user="@" in text)
    if not parts.scheme or not parts.netloc:
        return Address(text, text)
    host = parts.netloc.rpartition("@")[2]
    names = [name for name, _ in parse_qsl(parts.query, keep_blank_values=True)]
    secrets = tuple(name for name in names if SECRET_PARAMETERS.search(name))
    if host == parts.netloc and not secrets:
        return Address(text, _text(parts, host, "") if parts.query or parts.fragment else text, parameters=tuple(names))
    kept = [one for one in parts.query.split("&") if one and not SECRET_PARAMETERS.search(one.partition("=")[0])]
    others = tuple(name for name in names if name not in secrets)
    return Address(
        _text(parts, host, "&".join(kept)), _text(parts, host, ""), host != parts.netloc, secrets, parameters=others
    )


def _text(parts: SplitResult, host: str, query: str) -> str:
    return parts._replace(netloc=host, query=query, fragment="").geturl()
