from control_makers import hold_of

from pipeline.control.gate import RESUMABLE, Gate, Reason


def listened(slots: int = 5) -> tuple[Gate, list[int]]:
    gate, heard = Gate("query", slots), []
    gate.on_change = lambda: heard.append(gate.slots)
    return gate, heard


def test_a_gate_is_open_while_nobody_holds_it():
    gate = Gate("pull", 5)
    assert gate.is_open
    gate.hold(hold_of(Reason.MANUAL))
    assert not gate.is_open


def test_the_first_hold_of_a_reason_is_an_edge_and_the_second_is_not():
    gate = Gate("pull", 5)
    assert gate.hold(hold_of(Reason.CREDIT)) is True
    assert gate.hold(hold_of(Reason.CREDIT)) is False
    assert gate.hold(hold_of(Reason.AUTH)) is True


def test_a_reason_that_holds_already_keeps_its_beginning_and_takes_the_rest_anew():
    gate = Gate("pull", 5)
    gate.hold(hold_of(Reason.MANUAL, since=12.0, until=60.0))
    gate.hold(hold_of(Reason.MANUAL, since=99.0, until=600.0))
    assert (gate.holds[Reason.MANUAL].since, gate.holds[Reason.MANUAL].until) == (12.0, 600.0)
    gate.release(Reason.MANUAL)
    gate.hold(hold_of(Reason.MANUAL, since=700.0))
    assert gate.holds[Reason.MANUAL].since == 700.0


def test_two_reasons_need_two_releases_and_only_the_last_opens():
    gate, heard = listened()
    gate.hold(hold_of(Reason.CREDIT))
    gate.hold(hold_of(Reason.BREAKER))
    assert gate.release(Reason.CREDIT) is not None
    assert (gate.is_open, gate.epoch, heard) == (False, 0, [])
    assert gate.release(Reason.BREAKER) is not None
    assert (gate.is_open, gate.epoch, heard) == (True, 1, [5])


def test_releasing_what_does_not_hold_says_nothing_and_wakes_nobody():
    gate, heard = listened()
    assert gate.release(Reason.MANUAL) is None
    assert (gate.epoch, heard) == (0, [])


def test_a_release_answers_the_hold_that_ended():
    gate = Gate("pull", 5)
    hold = hold_of(Reason.MANUAL, since=12.0)
    gate.hold(hold)
    assert gate.release(Reason.MANUAL) is hold


def test_more_slots_wake_the_waiting_and_fewer_or_as_many_do_not():
    gate, heard = listened(5)
    gate.set_slots(5)
    gate.set_slots(4)
    assert heard == []
    gate.set_slots(6)
    assert heard == [6]


def test_more_slots_behind_a_hold_wake_nobody():
    gate, heard = listened(5)
    gate.hold(hold_of(Reason.STOPPED))
    gate.set_slots(50)
    assert (gate.slots, heard) == (50, [])


def test_a_hold_shows_reason_since_by_detail_and_what_releases_it():
    shown = hold_of(Reason.DROP_RATE, since=1.23456, until=99.0).as_dict()
    assert shown == {
        "reason": "drop_rate",
        "since": 1.235,
        "by": "test",
        "detail": "why",
        "releases": "operator",
    }


def test_resume_may_release_exactly_what_the_contract_lists():
    assert {str(reason) for reason in RESUMABLE} == {"manual", "credit", "auth", "drop_rate", "success_limit"}
