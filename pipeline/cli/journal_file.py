"""The journal's file, read beside the daemon that writes it or without one."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from pipeline.cli.outcome import BadConfig, Failed
from pipeline.config import Settings
from pipeline.errors import ConfigError, JournalFault, TidegateError
from pipeline.journal.opening import connect_reader
from pipeline.journal.schema import refuse_newer, version
from pipeline.journal.trouble import in_words
from pipeline.texts import Texts

BUSY_SECONDS = 10.0


def journal_path(settings: Settings) -> Path:
    from pipeline.app import JOURNAL_FILE  # the engine is loaded only by who needs it

    return Path(settings.daemon.data_dir).absolute() / JOURNAL_FILE


def existing_journal(settings: Settings, texts: Texts) -> Path:
    path = journal_path(settings)
    try:
        path.open("rb").close()
    except FileNotFoundError:
        off = settings.journal.level == "off"
        raise Failed(texts.say("cli.journal.off" if off else "cli.journal.none", path=path)) from None
    except OSError as error:
        # A service's journal is its own user's: SQLite would only say that it cannot be opened.
        raise Failed(texts.say("cli.journal.failed", why=f"{path}: {in_words(error)}")) from None
    return path


@contextmanager
def faults_told(texts: Texts, name: str) -> Iterator[None]:
    try:
        yield
    except ConfigError as error:
        raise BadConfig(str(error)) from None
    except JournalFault as error:
        raise Failed(texts.say("cli.journal.failed", why=error)) from None
    except (sqlite3.Error, OSError, TidegateError) as error:
        raise Failed(texts.say("cli.journal.failed", why=f"{name}: {in_words(error)}")) from None


@contextmanager
def reading(path: Path, texts: Texts) -> Iterator[sqlite3.Connection]:
    with faults_told(texts, path.name), closing(connect_reader(path, BUSY_SECONDS)) as connection:
        refuse_newer(path.name, version(connection))
        yield connection
