"""The kill bench in small, and its judge: it sees each kind of harm, and none where there is none."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
SCRIPTS = ROOT / "scripts"
KILLS = 5
DEAD = 110.0  # the first life lives from 100 to here
REBORN = 110.01


@pytest.fixture
def judging(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    import benchmarks.judging

    yield benchmarks.judging
    for name in [name for name in sys.modules if name.partition(".")[0] == "benchmarks"]:
        del sys.modules[name]


class Case:
    """Two lives: one killed at 110, one that ended by itself at 130."""

    def __init__(self, judging: ModuleType) -> None:
        self._judging = judging
        self.level = "tickets"
        self.tickets: list[Any] = []
        self.steps: dict[int, list[Any]] = {}
        self.facts: dict[str, Any] = {"handed": {}, "payments": [], "accepted": []}
        self.lives = [
            judging.Life("random", 100.0, DEAD, DEAD, ready=100.5),
            judging.Life("last", REBORN, 130.0, 130.0, ready=110.5, clean=True),
        ]

    def ticket(
        self,
        trace: str = "t",
        pulled: float = 101.0,
        outcome: str | None = "delivered",
        ended: float | None = 102.0,
        entry: str = "queued",
        steps: tuple[tuple[float, str, str], ...] = (),
    ) -> None:
        number = len(self.tickets) + 1
        self.tickets.append(self._judging.Ticket(number, trace, "key", pulled, entry, outcome, ended))
        self.steps[number] = [self._judging.Step(*step) for step in steps]

    def accepted(self, at: float, trace: str = "t", cut_off: bool = False) -> None:
        self.facts["accepted"].append([trace, at, cut_off])

    def paid(self, at: float, cut_off: bool = False) -> None:
        self.facts["payments"].append(["key", at, cut_off])

    def judged(self) -> dict[str, int]:
        journal = self._judging.Journalled(self.tickets, self.steps)
        judge = self._judging.Judge(self.lives, self.facts, journal, self.level)
        judge.judge()
        counted = ("journalled", "taken up", "maybe paid, listed")
        return {name: number for name, number in judge.found.items() if number and name not in counted}


@pytest.fixture
def case(judging: ModuleType) -> Case:
    return Case(judging)


def test_a_ticket_that_was_pulled_paid_and_delivered_once_is_no_harm(case: Case):
    case.facts["handed"]["t"] = ["key", 100.0, 101.0]
    case.ticket(
        steps=((101.1, "query", "asking"), (101.5, "query", "answered"), (101.6, "callback", "calling"))
    )
    case.paid(101.4)
    case.accepted(101.9)
    assert case.judged() == {}


def test_a_row_without_an_outcome_is_a_loss(case: Case):
    case.ticket(outcome=None, ended=None)
    assert case.judged() == {"lost after journalled": 1}


def test_a_delivery_the_receiver_knows_nothing_of_is_a_loss(case: Case):
    case.ticket()
    assert case.judged() == {"lost after journalled": 1}


def test_a_ticket_taken_in_and_then_called_a_duplicate_is_a_loss(case: Case):
    case.ticket(outcome="duplicates", ended=111.0, entry="joined")
    assert case.judged() == {"lost after journalled": 1}


def test_a_ticket_that_was_a_duplicate_from_the_first_is_none(case: Case):
    case.ticket(outcome="duplicates", ended=101.0, entry="")
    assert case.judged() == {"ended as duplicates": 1}


def test_a_delivery_the_disk_knew_of_must_not_come_again(case: Case):
    case.ticket(outcome="delivered", ended=102.0)
    case.accepted(101.9)
    case.accepted(112.0)
    assert case.judged() == {"delivered twice": 1}


def test_a_delivery_long_before_the_newest_row_must_not_come_again(case: Case):
    case.ticket(outcome="delivered", ended=112.1)
    case.ticket("other", pulled=109.9, outcome="restart", ended=112.0)
    case.accepted(109.0)
    case.accepted(112.0)
    assert case.judged() == {"delivered twice": 1, "ended as restart": 1}


def test_a_delivery_after_the_newest_row_is_in_the_window(case: Case):
    case.ticket(outcome="delivered", ended=112.1, steps=((109.95, "callback", "calling"),))
    case.accepted(109.99)
    case.accepted(112.0)
    assert case.judged() == {"delivered again, in the window": 1}


def test_no_kill_excuses_two_deliveries_in_one_life(case: Case):
    case.ticket(outcome="delivered", ended=109.0)
    case.accepted(108.0)
    case.accepted(108.5)
    assert case.judged() == {"delivered twice": 1}


def test_an_answer_that_the_receiver_cut_off_is_no_harm(case: Case):
    case.ticket(outcome="delivered", ended=109.0)
    case.accepted(108.0, cut_off=True)
    case.accepted(108.5)
    assert case.judged() == {"delivered again, answer cut off by the receiver": 1}


ASKED = (105.0, "query", "asking")
ANSWERED = (106.0, "query", "answered")
FAILED = ((106.1, "callback", "calling"), (106.2, "callback", "fault"))


def paid_twice(case: Case, *steps: tuple[float, str, str]) -> dict[str, int]:
    case.ticket(outcome="delivered", ended=113.0, steps=steps)
    case.paid(105.9)
    case.paid(112.0)
    case.accepted(112.9)
    return case.judged()


def test_a_query_whose_answer_no_row_tells_of_may_be_paid_again(case: Case):
    assert paid_twice(case, ASKED) == {"paid again, listed: query was sent": 1}


def test_an_answer_that_was_not_kept_may_be_paid_again_and_is_told_apart(case: Case):
    assert paid_twice(case, ASKED, ANSWERED) == {"paid again, listed: answer not kept": 1}


def test_an_answer_in_the_journal_must_not_be_paid_again(case: Case):
    case.level = "answers"
    assert paid_twice(case, ASKED, ANSWERED) == {"paid twice": 1}


def test_an_answer_whose_callback_failed_is_in_the_journal_at_any_level(case: Case):
    assert paid_twice(case, ASKED, ANSWERED, *FAILED) == {"paid twice": 1}


def test_a_payment_that_no_row_tells_of_must_be_younger_than_the_newest_row(case: Case):
    assert paid_twice(case, (109.0, "query", "processing")) == {"paid twice": 1}


def test_a_delivered_key_must_not_be_paid_again(case: Case):
    case.ticket(outcome="delivered", ended=106.5)
    case.ticket("second", pulled=111.0, outcome="delivered", ended=113.0)
    case.paid(105.9)
    case.paid(112.0)
    case.accepted(106.4)
    case.accepted(112.9, "second")
    assert case.judged() == {"paid twice": 1}


def test_a_ticket_without_a_row_is_lost_only_if_a_row_was_possible(case: Case):
    case.ticket(outcome="delivered", ended=109.9)
    case.accepted(109.8)
    case.facts["handed"] = {"early": ["key", 100.0, 105.0], "late": ["key", 100.0, 109.99]}
    assert case.judged() == {"not journalled": 1, "handed out in the window, not journalled": 1}


def test_a_recovery_that_leaves_out_a_ticket_is_seen(case: Case):
    case.ticket(outcome="delivered", ended=115.0)
    case.accepted(114.9)
    case.lives[1].taken_up = 0
    assert case.judged() == {"recovered wrongly": 1}


def test_some_kills_at_every_kind_of_moment_cost_nothing_that_was_journalled(tmp_path: Path):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TIDEGATE_")}
    environment["PYTHONPATH"] = os.pathsep.join((str(SCRIPTS), str(ROOT)))
    report = tmp_path / "kill.json"
    options = ["--kills", str(KILLS), "--rate", "50", "--seconds-max", "18", "--json", str(report)]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "kill", *options],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    said = done.stdout + done.stderr
    assert report.exists(), said
    result = json.loads(report.read_text(encoding="utf-8"))
    assert {name: number for name, number in result["must_be_zero"].items() if number} == {}, said
    assert result["kills"] == KILLS, said
    assert result["facts"]["taken up"] > 0, said
    assert done.returncode == 0, said
