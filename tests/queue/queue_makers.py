"""What the queue tests are made of."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

from pipeline.ticket import Ticket

#: Property tests print what is needed to run the failing example again.
PROPERTY = settings(
    max_examples=120,
    stateful_step_count=50,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


def ticket(key: str = "k", trace: str = "t", created: float = 0.0, priority: int = 0) -> Ticket:
    return Ticket(key=key, trace_id=trace, stamp=None, created=created, priority=priority)
