"""Tickets' tokens at rest: useless to whoever has the database, or a copy of it, and not the key file.

A ticket that was pulled before a crash can only be called back with its token, so the token must be on
disk; but no secret may be readable in the journal. SHAKE256 over a secret key makes a stream that no one
else can make, fresh for each token by a nonce of its own; a keyed BLAKE2b says whether the key was the
right one.
"""

from __future__ import annotations

import os
import secrets
from binascii import a2b_base64, b2a_base64
from hashlib import blake2b, shake_256
from hmac import compare_digest
from itertools import count
from pathlib import Path

KEY_BYTES = 32
NONCE_BYTES = 16
COUNT_BYTES = 8
MARK_BYTES = 16


class Seal:
    def __init__(self, key: bytes) -> None:
        self.key = key
        self._stream = shake_256(blake2b(key=key, person=b"token").digest())
        self._marker = blake2b(key=key, person=b"mark", digest_size=MARK_BYTES)
        # Random for this run and counted within it: asking the system for each token lets go of the
        # interpreter each time.
        self._run = secrets.token_bytes(NONCE_BYTES - COUNT_BYTES)
        self._count = count()

    def close(self, text: str) -> str | None:
        """None for no token at all."""
        if not text:
            return None
        data = text.encode("utf-8", "surrogatepass")
        nonce = self._run + next(self._count).to_bytes(COUNT_BYTES, "little")
        hidden = self._streamed(nonce, data)
        return b2a_base64(nonce + self._mark(nonce, hidden) + hidden, newline=False).decode()

    def open(self, sealed: str | None) -> str | None:
        """None if it was sealed with another key."""
        if sealed is None:
            return ""
        try:
            data = a2b_base64(sealed, strict_mode=True)
        except ValueError:
            return None
        nonce, rest = data[:NONCE_BYTES], data[NONCE_BYTES:]
        mark, hidden = rest[:MARK_BYTES], rest[MARK_BYTES:]
        if not compare_digest(mark, self._mark(nonce, hidden)):
            return None
        return self._streamed(nonce, hidden).decode("utf-8", "surrogatepass")

    def _streamed(self, nonce: bytes, data: bytes) -> bytes:
        size = len(data)
        source = self._stream.copy()
        source.update(nonce)
        stream = source.digest(size)
        mixed = int.from_bytes(data, "little") ^ int.from_bytes(stream, "little")
        return mixed.to_bytes(size, "little")

    def _mark(self, nonce: bytes, hidden: bytes) -> bytes:
        mark = self._marker.copy()
        mark.update(nonce + hidden)
        return mark.digest()


def load_seal(path: Path, known: Seal | None = None) -> Seal:
    """The key in its own file, made on first use, readable by its owner alone.

    A key file that was taken away comes back as it was `known`: rows on their way are sealed with it.
    """
    try:
        key = path.read_bytes()
    except FileNotFoundError:
        key = b""
    if len(key) != KEY_BYTES:
        key = known.key if known is not None else secrets.token_bytes(KEY_BYTES)
        part = path.with_name(f"{path.name}.part")
        part.unlink(missing_ok=True)
        handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(key)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    return known if known is not None and known.key == key else Seal(key)
