import json

import pytest

from pipeline.sim.pages import PageMaker, response_of


def test_an_answer_is_80_to_110_kb_of_json_with_its_ids():
    maker = PageMaker(1)
    for item_id in range(10_000_000_000, 10_000_000_040):
        body = maker.answer(123_456_789, item_id, "tw")
        item = json.loads(body)["response"]["data"]["item"]
        assert (item["itemid"], item["shopid"], item["country"]) == (item_id, 123_456_789, "tw")
        assert 80_000 - 64 <= len(body) <= 110_000 + 64


def test_a_page_mixes_escapes_chinese_and_ascii():
    body = PageMaker(1).answer(1, 2, "tw")
    assert b"\\u" in body
    assert b'\\"' in body
    assert b"\\n" in body
    assert 0.05 < sum(byte > 127 for byte in body) / len(body) < 0.6


@pytest.mark.parametrize("size", [400, 1000, 5000])
def test_a_page_may_be_small(size):
    body = PageMaker(1, size, size).answer(123_456_789, 12_345_678_901, "tw")
    assert json.loads(body)["_success"] is True
    assert abs(len(body) - size) <= 64


def test_the_same_seed_and_ids_give_the_same_page():
    assert PageMaker(3).answer(1, 2, "tw") == PageMaker(3).answer(1, 2, "tw")
    assert PageMaker(3).answer(1, 2, "tw") != PageMaker(4).answer(1, 2, "tw")


@pytest.mark.parametrize("item_id", ["x-1", "007", 'a"b', "", "٣"])
def test_an_odd_id_is_still_valid_json(item_id):
    body = PageMaker(1, 1000, 1000).answer("0", item_id, 't"w')
    assert json.loads(body)["response"]["data"]["item"]["itemid"] == item_id


def test_the_response_object_is_cut_out_without_parsing():
    body = PageMaker(1, 1000, 1000).answer(1, 2, "tw")
    assert json.loads(response_of(body)) == json.loads(body)["response"]
