"""The shape of the outside. A lane knows these three and nothing of HTTP or SQL.

No method raises for what the outside did wrong: the verdict says it. An exception is a bug in the port.
`timeout` is always finite: it is what remains of the ticket's life.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from pipeline.errors import ConfigError
from pipeline.ticket import Answer, Receipt, Stored, Ticket, Verdict


@dataclass(frozen=True, slots=True)
class Pulled:
    """One pull: ANSWERED (perhaps with no tickets), FAULT or AUTH."""

    verdict: Verdict = Verdict.ANSWERED
    tickets: Sequence[Ticket] = field(default=())
    malformed: int = 0
    undated: int = 0
    detail: str = ""
    retry_after: float | None = None
    trouble: str = ""  # `CallFailed.trouble`


class Port(Protocol):
    async def open(self) -> None: ...

    async def close(self) -> None: ...


class Source(Port, Protocol):
    async def pull(self, limit: int, timeout: float) -> Pulled: ...

    async def volume(self) -> int | None:
        """Upstream's own count of today's tickets; None if it does not say."""
        ...


class Provider(Port, Protocol):
    async def query(self, ticket: Ticket, timeout: float) -> Answer: ...

    async def credits(self) -> float | None:
        """What the account has left; None if it does not say."""
        ...


class Recorder(Protocol):
    """What a stage tells the journal. Telling never waits and never raises: a line in a list."""

    def asking(self, ticket: Ticket) -> None:
        """A query is about to be sent."""
        ...

    def answered(self, ticket: Ticket, answer: Answer) -> None:
        """Any answer to a query, also one that is no result."""
        ...

    def calling(self, ticket: Ticket) -> None:
        """A callback is about to be sent."""
        ...

    def keep(self, ticket: Ticket, answer: Answer) -> Stored | None:
        """This answer must survive a crash: it waits for another try. None if there is no room for it."""
        ...

    def saving(self, ticket: Ticket) -> Awaitable[None] | None:
        """To be waited for before a callback, if its answer must be on disk by then and is not; bounded."""
        ...

    async def fetch(self, kept: Any) -> Answer | None:
        """An answer that was kept; None if the disk has lost it. Raises JournalFault if not now."""
        ...

    async def flush(self) -> None:
        """Until everything told so far is on disk; for as long as the disk is in trouble."""
        ...


class Sink(Port, Protocol):
    async def deliver(self, ticket: Ticket, answer: Answer, timeout: float) -> Receipt: ...


#: What a lane calls of its ends.
METHODS = {
    "source": ("open", "close", "pull", "volume"),
    "provider": ("open", "close", "query", "credits"),
    "sink": ("open", "close", "deliver"),
}


def own_end(role: str, name: str) -> Any:
    """The class that `module:Class` names. Raises ConfigError if it cannot be an end of this role."""
    module, _, attribute = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError as error:
        raise ConfigError(f"{name}: {error} (is its folder in PYTHONPATH?)") from None
    except (ImportError, AttributeError, SyntaxError) as error:
        raise ConfigError(f"{name}: {error}") from None
    if not inspect.isclass(found):
        raise ConfigError(f"{name}: is no class")
    missing = [method for method in METHODS[role] if not callable(getattr(found, method, None))]
    if missing:
        raise ConfigError(f"{name}: a {role} needs {', '.join(missing)}")
    try:
        inspect.signature(found).bind("section", "clock")
    except TypeError as error:
        raise ConfigError(f"{name}: is made with its section and the clock: {error}") from None
    return found
