"""What can go wrong, as types.

TidegateError
├── ConfigError         a key that is unknown, missing or out of range: exit 78
├── CommandError        an operator's request that cannot be done, with an HTTP status
│   ├── UnknownLane     404
│   └── BadRequest      400
├── JournalFault        the journal cannot be read or written now
├── IllegalTransition   a state machine was asked for an edge it does not have: a bug
└── CallFailed          one call to the outside ended without an answer
    ├── Unreachable     nothing was sent: no connection, no DNS
    │   └── OutOfDescriptors   because we may not open another file
    ├── Untrusted       nothing was sent: TLS certificate refused
    ├── TimedOut        sent, and the deadline came before the whole answer
    ├── BodyTooLarge    more than `max_body`, counted after decompression
    └── Garbled         sent, and then reset, hung up, not HTTP or not decodable
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import ClassVar


class TidegateError(Exception):
    """Base of every error raised on purpose."""


class ConfigError(TidegateError):
    """The configuration cannot be used; the message names the key."""


class CommandError(TidegateError):
    status = 409
    code = "conflict"


class UnknownLane(CommandError):
    status = 404
    code = "unknown_lane"

    def __init__(self, lane: str, known: Iterable[str]) -> None:
        super().__init__(f"there is no lane named {lane!r}; known: {', '.join(sorted(known))}")


class BadRequest(CommandError):
    status = 400
    code = "bad_request"


class JournalFault(TidegateError):
    """The journal cannot be read or written now."""


class IllegalTransition(TidegateError):
    def __init__(self, machine: str, before: str, after: str) -> None:
        super().__init__(f"{machine}: no way from {before} to {after}")


class CallFailed(TidegateError):
    """One call to the outside ended without an answer."""

    #: The name under which people hear of it at once; most failures are the breaker's to judge.
    trouble: ClassVar[str] = ""


class TimedOut(CallFailed):
    pass


class Unreachable(CallFailed):
    pass


class OutOfDescriptors(Unreachable):
    trouble = "descriptors"

    def __init__(self) -> None:
        super().__init__("no file descriptors left")


class Untrusted(CallFailed):
    trouble = "tls"


class BodyTooLarge(CallFailed):
    trouble = "too_large"


class Garbled(CallFailed):
    pass


def os_reason(error: OSError) -> str:
    """Without the address, which asyncio writes into what the system said and the caller has named."""
    if error.errno is not None and error.errno > 0:  # those of name resolution are negative
        return os.strerror(error.errno)
    return error.strerror or str(error)
