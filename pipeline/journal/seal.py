"""Tickets' tokens at rest: useless to whoever has the database, or a copy of it, and not the key file.

A ticket that was pulled before a crash can only be called back with its token, so the token must be on
disk; but no secret may be readable in the journal. BLAKE2b with a secret key makes a stream that no one
else can make, fresh for each token by a random nonce; a second BLAKE2b says whether the key was the right
one.
"""

from __future__ import annotations

import os
import secrets
from hashlib import blake2b
from hmac import compare_digest
from pathlib import Path

KEY_BYTES = 32
NONCE_BYTES = 16
MARK_BYTES = 16
BLOCK_BYTES = 64


class Seal:
    def __init__(self, key: bytes) -> None:
        self._key = key

    def close(self, text: str) -> bytes | None:
        """None for no token at all."""
        if not text:
            return None
        data = text.encode("utf-8", "surrogatepass")
        nonce = secrets.token_bytes(NONCE_BYTES)
        hidden = self._streamed(nonce, data)
        return nonce + self._mark(nonce, hidden) + hidden

    def open(self, sealed: bytes | None) -> str | None:
        """None if it was sealed with another key."""
        if sealed is None:
            return ""
        nonce, rest = sealed[:NONCE_BYTES], sealed[NONCE_BYTES:]
        mark, hidden = rest[:MARK_BYTES], rest[MARK_BYTES:]
        if not compare_digest(mark, self._mark(nonce, hidden)):
            return None
        return self._streamed(nonce, hidden).decode("utf-8", "surrogatepass")

    def _streamed(self, nonce: bytes, data: bytes) -> bytes:
        blocks = range((len(data) + BLOCK_BYTES - 1) // BLOCK_BYTES)
        stream = b"".join(
            blake2b(number.to_bytes(8, "little"), key=self._key, salt=nonce, person=b"token").digest()
            for number in blocks
        )[: len(data)]
        mixed = int.from_bytes(data, "little") ^ int.from_bytes(stream, "little")
        return mixed.to_bytes(len(data), "little")

    def _mark(self, nonce: bytes, hidden: bytes) -> bytes:
        return blake2b(hidden, digest_size=MARK_BYTES, key=self._key, salt=nonce, person=b"mark").digest()


def load_seal(path: Path) -> Seal:
    """The key in its own file, made on first use, readable by its owner alone."""
    try:
        key = path.read_bytes()
    except FileNotFoundError:
        key = b""
    if len(key) != KEY_BYTES:
        key = secrets.token_bytes(KEY_BYTES)
        part = path.with_name(f"{path.name}.part")
        part.unlink(missing_ok=True)
        handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(key)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    return Seal(key)
