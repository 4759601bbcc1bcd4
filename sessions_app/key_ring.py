"""How secret values are kept: encrypted with the deployment's key ring (`TENURE_SECRET_KEYS`).

The ring is a comma-separated list of Fernet keys (32 random bytes, URL-safe base64). The first encrypts, all
of them decrypt: to change keys, put a new one in front, store every secret again, then drop the old one. No error
message holds key material or a secret.
"""

import re
from collections.abc import Sequence

from cryptography.fernet import Fernet, InvalidToken, MultiFernet

_KEY = re.compile(r"[A-Za-z0-9_-]{43}=", re.ASCII)


class MalformedKeyRing(ValueError):
    """The key ring is empty or one of its keys is none."""


class UndecryptableSecret(ValueError):
    """No key of the ring decrypts this secret: its key was dropped, or the value was changed."""

    def __init__(self) -> None:
        super().__init__(self.__doc__)


def check_key_ring(keys: Sequence[str]) -> None:
    """Looked at when the settings are read; `MalformedKeyRing` says which one is wrong. An empty ring is none."""
    if keys:
        _fernet(keys)


def encrypt(value: str, *, keys: Sequence[str]) -> bytes:
    """The value under the first key; a different token each time."""
    return _fernet(keys).encrypt(value.encode())


def decrypt(token: bytes | memoryview, *, keys: Sequence[str]) -> str:
    """The value; `UndecryptableSecret` where no key fits."""
    try:
        return _fernet(keys).decrypt(bytes(token)).decode()
    except InvalidToken:
        raise UndecryptableSecret from None


def _fernet(keys: Sequence[str]) -> MultiFernet:
    if not keys:
        raise MalformedKeyRing("the key ring is empty; it needs at least one key")
    members = []
    for position, key in enumerate(keys, start=1):
        if not _KEY.fullmatch(key):  # the library overlooks what follows the padding
            raise MalformedKeyRing(f"key {position} of {len(keys)} is not 32 bytes in URL-safe base64")
        members.append(Fernet(key))
    return MultiFernet(members)
