"""Compresses and encrypts texts for the database with AES-256-GCM, bound to the name of their place."""

import os
import zlib

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from gateway.errors import StateError

NONCE_BYTES = 12


class Seal:
    """`key` is 32 secret bytes that are not in the database; `name` is the file that has them, for error messages."""

    def __init__(self, key: bytes, name: str) -> None:
        self._cipher = AESGCM(key)
        self._name = name

    def close(self, place: bytes, text: bytes) -> bytes:
        """Encrypted text that can be decrypted only for this place."""
        nonce = os.urandom(NONCE_BYTES)
        return nonce + self._cipher.encrypt(nonce, zlib.compress(text), place)

    def open(self, place: bytes, sealed: bytes, what: str) -> bytes:
        """Raises StateError if `what` was encrypted with another key or for another place, or altered."""
        try:
            return zlib.decompress(self._cipher.decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], place))
        except InvalidTag as error:
            raise StateError(
                f"{what} does not open with this deployment's {self._name}; "
                "restore that file from the machine that stored it"
            ) from error
