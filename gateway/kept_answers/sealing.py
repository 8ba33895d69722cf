"""Encrypts a tenant's records, so that reading the store reveals nothing. Knows no store."""

import logging
import os
from collections.abc import Callable
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

log = logging.getLogger(__name__)
NONCE_BYTES: Final = 12


class Seal:
    """`secret` returns a tenant's 32 bytes. A sealed record can be opened only under its own name."""

    def __init__(self, secret: Callable[[str], bytes]) -> None:
        self._secret = secret

    def close(self, tenant: str, name: str, plain: bytes) -> bytes:
        nonce = os.urandom(NONCE_BYTES)
        return nonce + AESGCM(self._secret(tenant)).encrypt(nonce, plain, name.encode())

    def open(self, tenant: str, name: str, sealed: bytes) -> bytes | None:
        """None if it was sealed with another pepper, or altered."""
        cipher = AESGCM(self._secret(tenant))
        try:
            return cipher.decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], name.encode())
        except (InvalidTag, ValueError):
            log.warning("a kept record cannot be decrypted: it was stored under another pepper, or altered")
            return None
