"""What an answer means: the table of CONTRACT 1, row by row, and then what no table foresees."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.config import QueryConfig
from pipeline.query.reading import AnswerReader
from pipeline.ticket import Answer, Verdict

CREDIT, PROCESSING, BROKEN, OTHER = 1070102, 1100002, 1000000, 1234567
ITEM = {"_success": True, "response": {"data": {"item": {"title": "茶"}}}}
READER = AnswerReader(QueryConfig())


def read(status: int, body: Any, retry_after: float | None = None) -> Answer:
    raw = body if isinstance(body, bytes) else json.dumps(body, ensure_ascii=False).encode()
    return READER.read(status, raw, retry_after)


def verdict(status: int, body: Any) -> Verdict:
    return read(status, body).verdict


def failed(code: Any) -> dict[str, Any]:
    return {"_success": False, "error": {"code": code, "message": "no"}}


# -- the table -------------------------------------------------------------------------------------


def test_success_and_an_item_is_answered_with_the_response_as_it_stood():
    raw = b'{"_success": true, "response": {"data" : {"item":{"t":"\xe8\x8c\xb6"} } } }'
    answer = read(200, raw)
    assert answer.verdict is Verdict.ANSWERED
    assert answer.body == b'{"data" : {"item":{"t":"\xe8\x8c\xb6"} } }'


@pytest.mark.parametrize(
    "body",
    [
        {"_success": False},
        {"_success": True},
        {"_success": True, "response": None},
        {"_success": True, "response": {}},
        {"_success": True, "response": {"data": None}},
        {"_success": True, "response": {"data": {}}},
        {"_success": True, "response": {"data": {"item": None}}},
        {"_success": True, "response": {"data": {"item": {}}}},
        {"_success": True, "response": {"data": []}},
        {"_success": False, "response": {"data": {"item": {"title": "x"}}}},
        {"response": {"data": {"item": {"title": "x"}}}},
        {},
    ],
)
def test_two_hundred_without_success_and_item_is_offline_a_result_all_the_same(body: Any):
    assert verdict(200, body) is Verdict.OFFLINE


@pytest.mark.parametrize("status", [400, 404, 409, 410, 422, 451])
def test_four_hundreds_with_another_error_code_are_offline(status: int):
    assert verdict(status, failed(OTHER)) is Verdict.OFFLINE


@pytest.mark.parametrize("status", [200, 400, 401, 403, 404, 408, 429, 500, 503])
def test_the_processing_code_is_processing_whatever_the_status(status: int):
    assert verdict(status, failed(PROCESSING)) is Verdict.PROCESSING


@pytest.mark.parametrize("status", [200, 400, 401, 403, 404, 408, 429, 500, 503])
def test_the_fault_code_is_the_providers_error_whatever_the_status(status: int):
    assert verdict(status, failed(BROKEN)) is Verdict.PROVIDER_ERROR


@pytest.mark.parametrize("status", [200, 400, 401, 402, 403, 404, 408, 429, 500, 503])
def test_the_credit_code_is_credit_whatever_the_status(status: int):
    assert verdict(status, failed(CREDIT)) is Verdict.CREDIT


@pytest.mark.parametrize("body", [ITEM, failed(OTHER), failed(PROCESSING), b"", b"<html>", b"[1]"])
def test_four_hundred_and_two_is_credit_whatever_it_says(body: Any):
    assert verdict(402, body) is Verdict.CREDIT


@pytest.mark.parametrize("status", [401, 403])
@pytest.mark.parametrize("body", [ITEM, failed(OTHER), b"", b"<html>", b"{", []])
def test_refused_credentials_are_auth_and_never_a_result(status: int, body: Any):
    assert verdict(status, body) is Verdict.AUTH


@pytest.mark.parametrize("status", [408, 429, 500, 501, 502, 503, 504, 520, 599])
@pytest.mark.parametrize("body", [ITEM, failed(OTHER), b"", b"<html>", b"{"])
def test_time_outs_throttling_and_five_hundreds_are_faults_whatever_they_say(status: int, body: Any):
    assert verdict(status, body) is Verdict.FAULT


@pytest.mark.parametrize("status", [200, 201, 204, 302, 400, 404, 418])
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b" ",
        b"<html></html>",
        b"{",
        b'{"_success":true,"response":{"data":{"item":{"title":"cut o',
        b'{"_success":true,"response":{"data":{"item":{"a":1}}}',
        b'{"_success":true} and more',
        b'{"_success":true}{"_success":true}',
        b"{'_success': true}",
        b'{"a":NaN}',
        b'{"a":01}',
        b'{"a":1,}',
        b'{"_success":"\xff"}',
        b'\xef\xbb\xbf{"_success":true}',
        b"\x1f\x8b\x08\x00",
        b"nope",
        b'"cut off',
    ],
)
def test_not_json_and_truncated_are_faults(status: int, body: bytes):
    assert verdict(status, body) is Verdict.FAULT


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (404, b"404 page not found"),
        (400, b"400 Bad Request"),
        (200, b"[1, 2"),
        (200, b"[" * 100_000),
        (200, b"12 apples"),
        (200, b"true enough"),
    ],
)
def test_text_that_begins_like_json_is_not_json(status: int, body: bytes):
    assert verdict(status, body) is Verdict.FAULT


@pytest.mark.parametrize("field", ["error", "response", "else"])
def test_nesting_too_deep_to_be_read_is_a_fault_and_no_crash(field: str):
    body = b'{"_success":true,"%s":%s}' % (field.encode(), b"[" * 100_000 + b"]" * 100_000)
    assert verdict(200, body) is Verdict.FAULT


# -- order of care and details ---------------------------------------------------------------------


def test_a_credit_code_beats_the_item_beside_it():
    assert verdict(200, ITEM | {"error": {"code": CREDIT}}) is Verdict.CREDIT


def test_retry_after_is_handed_on_with_whatever_is_tried_again():
    for status, body in ((429, b""), (400, failed(PROCESSING)), (400, failed(BROKEN)), (503, b"{}")):
        assert read(status, body, 7.5).retry_after == 7.5


@pytest.mark.parametrize(("status", "throttled"), [(429, True), (503, True), (408, False), (500, False)])
def test_too_much_is_said_by_429_and_503(status: int, throttled: bool):
    assert read(status, b"").throttled is throttled


def test_a_broken_two_hundred_may_have_been_paid_for_and_a_broken_four_hundred_not():
    assert read(200, b"{").maybe_paid
    assert not read(404, b"<html>").maybe_paid
    assert not read(500, b"{").maybe_paid


def test_the_whole_answer_goes_out_where_it_has_no_response():
    for body in (b'{"_success":false}', b'{"response":null}', b"[]", b"7", b"null"):
        assert read(200, body).body == body
    assert read(404, json.dumps(failed(OTHER)).encode()).body == json.dumps(failed(OTHER)).encode()


def test_an_offline_answer_with_a_response_sends_that():
    assert read(200, b'{"_success":false,"response":{"gone":1}}').body == b'{"gone":1}'


@pytest.mark.parametrize("response", [b"[]", b"5", b'""', b"false"])
def test_a_response_that_is_no_object_is_none(response: bytes):
    body = b'{"_success":true,"response":' + response + b"}"
    assert read(200, body).body == body


@pytest.mark.parametrize("status", [300, 301, 302, 304, 307, 399])
def test_a_redirect_is_a_fault(status: int):
    assert verdict(status, b"{}") is Verdict.FAULT
    assert verdict(status, b"[]") is Verdict.FAULT


def test_a_redirect_that_carries_a_response_is_a_fault_too():
    assert verdict(302, {"response": {"x": 1}}) is Verdict.FAULT


def test_a_fault_says_why_and_no_part_of_the_body():
    assert read(502, b"secret").detail == "HTTP 502"
    assert read(200, b"secret").detail == "not JSON"
    assert read(200, failed(BROKEN)).detail == "code 1000000"
    assert read(401, b"secret").detail == "HTTP 401"
    assert read(400, failed(CREDIT)).detail == "HTTP 400, code 1070102"


# -- what no table foresees ------------------------------------------------------------------------


@pytest.mark.parametrize("success", ["true", 1, "yes", [True], {"a": 1}, 1.0, None, 10**30, "", 0])
def test_only_true_is_success(success: Any):
    assert verdict(200, ITEM | {"_success": success}) is Verdict.OFFLINE


@pytest.mark.parametrize(
    "code",
    [None, True, False, [], [CREDIT], {}, {"code": CREDIT}, "", "x", "-1070102", "１", 10**30, 1.5, "9" * 40],
)
def test_an_error_code_of_a_wrong_type_is_another_error(code: Any):
    assert verdict(400, failed(code)) is Verdict.OFFLINE
    assert verdict(500, failed(code)) is Verdict.FAULT


@pytest.mark.parametrize("error", [None, "no", 5, [], [{"code": CREDIT}], True, {}])
def test_an_error_of_a_wrong_type_has_no_code(error: Any):
    assert verdict(400, {"_success": False, "error": error}) is Verdict.OFFLINE


def test_a_code_written_as_text_is_the_code():
    assert verdict(400, failed("1070102")) is Verdict.CREDIT
    assert verdict(400, failed("1100002")) is Verdict.PROCESSING


@pytest.mark.parametrize("digits", [30, 5000])
def test_integers_of_any_length_crash_nothing(digits: int):
    huge = b"9" * digits
    assert READER.read(400, b'{"error":{"code":' + huge + b"}}").verdict is Verdict.OFFLINE
    body = b'{"_success":true,"response":{"data":{"item":{"a":' + huge + b"}}}}"
    assert READER.read(200, body).verdict is Verdict.ANSWERED


def test_of_a_key_given_twice_the_last_counts():
    twice = b'{"_success":false,"_success":true,"response":1,"response":{"data":{"item":{"a":1}}}}'
    assert verdict(200, twice) is Verdict.ANSWERED
    assert verdict(400, b'{"error":{"code":5},"error":{"code":1070102}}') is Verdict.CREDIT
    assert verdict(400, b'{"error":{"code":1070102,"code":5}}') is Verdict.OFFLINE


@pytest.mark.parametrize("body", [[], [1, 2], [[[]]], 0, -1.5, 1e300, "text", True, False, None, [ITEM]])
def test_json_that_is_no_object_is_offline_at_two_hundred(body: Any):
    assert verdict(200, body) is Verdict.OFFLINE


@pytest.mark.parametrize(
    "item", [b'{"a":1}', b' { "a" : 1 }', b'{"a":null}', b'{"":[]}', b'{"a":{"item":{}}}']
)
@pytest.mark.parametrize("before", [b"", b'"error":null,', b'"x":[{"item":{}}],'])
def test_an_item_is_found_however_it_is_written(item: bytes, before: bytes):
    for inside in (b'{"data":{%s"item":' + item + b"}}", b'{"a":0,"data":{"b":0,%s"item":' + item + b"}}"):
        body = b'{"_success":true,"response":' + inside % before + b"}"
        assert verdict(200, body) is Verdict.ANSWERED


def test_a_title_cut_in_the_middle_of_an_emoji_is_an_answer():
    body = b'{"_success":true,"response":{"data":{"item":{"title":"tea \\ud83c"}}}}'
    json.loads(body)
    assert verdict(200, body) is Verdict.ANSWERED


def test_half_an_emoji_makes_no_product_disappear_wherever_its_item_stands():
    body = b'{"_success":true,"response":{"version":1,"data":{"item":{"title":"tea \\ud83c"}}}}'
    assert verdict(200, body) is Verdict.ANSWERED


@pytest.mark.parametrize("number", [b"1e999", b"12345678901234567890.5", b"1.10"])
def test_half_an_emoji_changes_no_number_beside_it(number: bytes):
    body = b'{"_success":true,"response":{"data":{"item":{"title":"\\ud83c","price":' + number + b"}}}}"
    answer = read(200, body)
    assert answer.verdict is Verdict.ANSWERED
    assert number in answer.body


def test_an_item_elsewhere_is_no_item():
    for response in (
        {"item": {"a": 1}},
        {"data": {"x": {"item": {"a": 1}}}},
        {"x": {"data": {"item": {"a": 1}}}},
    ):
        assert verdict(200, {"_success": True, "response": response}) is Verdict.OFFLINE


def test_configured_codes_replace_the_usual_ones():
    reader = AnswerReader(QueryConfig(credit_codes=(7,), processing_codes=(8, 9), fault_codes=()))
    assert reader.read(400, json.dumps(failed(7)).encode()).verdict is Verdict.CREDIT
    assert reader.read(400, json.dumps(failed(9)).encode()).verdict is Verdict.PROCESSING
    assert reader.read(400, json.dumps(failed(CREDIT)).encode()).verdict is Verdict.OFFLINE
    assert reader.read(400, json.dumps(failed(BROKEN)).encode()).verdict is Verdict.OFFLINE


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["_success", "response", "error", "code", "data", "item", "x"]), inner
        )
    ),
    max_leaves=15,
)
STATUS = st.sampled_from([200, 201, 302, 400, 401, 402, 404, 408, 429, 500, 503])


@given(STATUS, JSON)
def test_any_json_gets_a_verdict_and_a_result_carries_json(status: int, document: Any):
    answer = read(status, json.dumps(document).encode())
    if answer.verdict.is_result:
        json.loads(answer.body)
    if status in (408, 429, 500, 503):
        assert not answer.verdict.is_result


@given(STATUS, st.binary(max_size=60))
def test_any_bytes_get_a_verdict(status: int, body: bytes):
    assert isinstance(READER.read(status, body).verdict, Verdict)


@given(JSON, st.data())
def test_an_answer_cut_off_anywhere_is_never_a_result(document: Any, data: st.DataObject):
    whole = json.dumps({"_success": True, "response": document}).encode()
    cut = whole[: data.draw(st.integers(0, len(whole) - 1))]
    assert verdict(200, cut) is Verdict.FAULT
