"""Ids that callers see for responses stored at a provider; only the team that made a response can use its id. Pure.

The provider's own id lets anyone with our key read, continue and delete the response, so callers never see it. Ours is
the AES-SIV encryption (RFC 5297) of the backend's name and the provider's id under the team's secret: deterministic,
and unreadable if altered or with another secret. Ids not made here, of responses from outside this gateway, pass
unchanged.
"""

import base64
import binascii
from typing import Final

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESSIV

PREFIX: Final = "resp_bk_"


class Named(msgspec.Struct, frozen=True):
    """A provider's own id of a response and its backend, None if the id was not made here."""

    own: str
    backend: str | None


class ResponseNames:
    """The ids of one team, whose `secret` has SECRET_BYTES bytes."""

    def __init__(self, secret: bytes) -> None:
        self._cipher = AESSIV(secret)

    def outward(self, own: str, backend: str) -> str:
        """The id to show for `own`, the id at that backend's provider."""
        sealed = self._cipher.encrypt(f"{backend}\0{own}".encode(), None)
        return PREFIX + base64.urlsafe_b64encode(sealed).decode().rstrip("=")

    def inward(self, name: str) -> Named | None:
        """What the id stands for; None if it is another team's, or invalid."""
        if not name.startswith(PREFIX):
            return Named(name, None)
        sealed = name.removeprefix(PREFIX)
        try:
            opened = self._cipher.decrypt(base64.urlsafe_b64decode(sealed + "=" * (-len(sealed) % 4)), None)
        except (InvalidTag, binascii.Error, ValueError):
            return None
        backend, _, own = opened.decode().partition("\0")
        return Named(own, backend)
