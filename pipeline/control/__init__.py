"""Decisions as values: no await, no I/O, the time handed in. `controller.tick()` alone writes the gates."""
