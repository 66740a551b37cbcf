"""The callback's body: always JSON, and the result in it the answer's exact text."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pipeline.callback.body import BodyMaker, json_string
from pipeline.config import CallbackConfig
from pipeline.ticket import Ticket

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=12,
)


@given(json_values, st.sampled_from([None, 2, "\t"]), st.booleans())
@example({"a\\b": '"\\"', "z": "\u2028\x7f\x00"}, "\t", False)
def test_json_text_comes_back_as_it_went_in(value: Any, indent: Any, ascii_only: bool) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    assert orjson.loads(json_string(text)) == text.decode("utf-8", "replace")


def test_line_breaks_of_a_pretty_printed_answer_are_escaped() -> None:
    literal = json_string(b'{\r\n\t"a": 1\r\n}')
    assert literal == b'"{\\r\\n\\t\\"a\\": 1\\r\\n}"'


@given(st.binary())
@example(b"\xff")
@example(b'{"a":"\xed\xa0\x80"}')
@example("漢".encode()[:2])
def test_any_bytes_are_a_valid_literal(text: bytes) -> None:
    literal = json_string(text)
    assert orjson.loads(literal) == text.decode("utf-8", "replace")
    assert not any(byte < 0x20 for byte in literal)


def ticket(**payload: Any) -> Ticket:
    return Ticket("k", "t", None, payload)


def made(ticket: Ticket, result: bytes = b'{"a":"b"}', **config: Any) -> dict[str, Any]:
    body = BodyMaker(CallbackConfig(url="http://x", **config)).make(ticket, result)
    found: dict[str, Any] = orjson.loads(body)
    assert body == orjson.dumps(found), "compact, no key twice"
    return found


def test_the_body_is_what_the_contract_says() -> None:
    body = made(ticket(shop_id="1", item_id="2", country="tw"))
    assert list(body) == ["appVersion", "url", "result"]
    assert (body["appVersion"], body["result"]) == ("vv2", '{"a":"b"}')
    assert body["url"].startswith("https://shopee.tw/api/v4/pdp/get_pc?display_model_id=0&item_id=2&")


@pytest.mark.parametrize(
    "template",
    [
        {"result": "$result"},
        {"result": "$result", "a": 1, "b": [True, None]},
        {"a": {"b": "$result"}, "result": "$result"},
        {"a": "$shop_id", "b": "$nothing", "result": "$result", "c": "$shop_id", "d": "plain"},
        {'a"\\': "x", "result": "$result", "u": "$page_url"},
    ],
)
def test_any_template_is_filled_in_its_order(template: dict[str, Any]) -> None:
    filled = {"$result": '{"a":"b"}', "$shop_id": 7, "$nothing": "", "$page_url": "at/7/"}
    expected = [(k, filled.get(v, v) if isinstance(v, str) else v) for k, v in template.items()]
    body = made(ticket(shop_id=7), body=template, page_url="at/{shop_id}/{unknown}")
    assert list(body.items()) == expected


@given(st.text(), st.binary(max_size=50))
def test_whatever_a_ticket_holds_the_body_is_json(value: str, result: bytes) -> None:
    value = value.encode("utf-8", "ignore").decode()
    body = made(ticket(shop_id=value, item_id='"', country="\\"), result)
    assert f"shop_id={value}&" in body["url"]


def test_one_maker_makes_many() -> None:
    maker = BodyMaker(CallbackConfig(url="http://x"))
    bodies = [orjson.loads(maker.make(ticket(shop_id=n), b"%d" % n)) for n in range(3)]
    assert [body["result"] for body in bodies] == ["0", "1", "2"]
