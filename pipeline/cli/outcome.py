"""How a command can end other than well, as exit codes."""

from __future__ import annotations

import click


class Failed(click.ClickException):
    exit_code = 1


class Refused(Failed):
    """By the daemon, with the code of its error."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


class DaemonUnreachable(click.ClickException):
    exit_code = 3


class BadConfig(click.ClickException):
    exit_code = 78
