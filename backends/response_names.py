"""What a response that a provider keeps is called outside: by a name that its team alone can use. Pure.

Whoever knows a provider's own name can read, continue and delete what it stands for with the provider's key, so callers
never see it. The name is AES-SIV (RFC 5297) of the backend's and the provider's names under a secret of the team's:
the same each time, and whoever changes a letter or has another secret reads nothing. Names that were not made here, of
responses that did not come through this gateway, pass as they are.
"""

import base64
import binascii
from typing import Final

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESSIV

PREFIX: Final = "resp_bk_"


class Named(msgspec.Struct, frozen=True):
    """A response as its provider calls it, and which backend that is; None where the name was not made here."""

    own: str
    backend: str | None


class ResponseNames:
    """Of one team, whose `secret` has SECRET_BYTES bytes."""

    def __init__(self, secret: bytes) -> None:
        self._cipher = AESSIV(secret)

    def outward(self, own: str, backend: str) -> str:
        """The name to show for what that backend's provider calls `own`."""
        sealed = self._cipher.encrypt(f"{backend}\0{own}".encode(), None)
        return PREFIX + base64.urlsafe_b64encode(sealed).decode().rstrip("=")

    def inward(self, name: str) -> Named | None:
        """What it stands for; None for a name of another team's, or of nobody's."""
        if not name.startswith(PREFIX):
            return Named(name, None)
        sealed = name.removeprefix(PREFIX)
        try:
            opened = self._cipher.decrypt(base64.urlsafe_b64decode(sealed + "=" * (-len(sealed) % 4)), None)
        except (InvalidTag, binascii.Error, ValueError):
            return None
        backend, _, own = opened.decode().partition("\0")
        return Named(own, backend)
