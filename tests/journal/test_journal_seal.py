from binascii import a2b_base64, b2a_base64
from pathlib import Path

import pytest

from pipeline.journal.seal import Seal, load_seal

KEY, OTHER = b"k" * 32, b"o" * 32


@pytest.mark.parametrize("token", ["x", "eyJhbGciOi.J9", "令牌" * 50, "t" * 64, "t" * 65, "\ud800"])
def test_a_sealed_token_comes_back_with_the_same_key_and_not_with_another(token: str):
    sealed = Seal(KEY).close(token)
    assert sealed is not None
    assert token.encode("utf-8", "surrogatepass") not in a2b_base64(sealed) or len(token) == 1
    assert Seal(KEY).open(sealed) == token
    assert Seal(OTHER).open(sealed) is None


def test_no_token_stays_no_token():
    assert Seal(KEY).close("") is None
    assert Seal(KEY).open(None) == ""


def test_the_same_token_never_looks_the_same_twice():
    assert Seal(KEY).close("token") != Seal(KEY).close("token")


def test_a_changed_or_cut_seal_is_not_opened():
    sealed = Seal(KEY).close("token")
    assert sealed is not None
    data = a2b_base64(sealed)
    for place in range(len(data)):
        changed = bytearray(data)
        changed[place] ^= 1
        assert Seal(KEY).open(b2a_base64(changed, newline=False).decode()) is None
        assert Seal(KEY).open(b2a_base64(data[:place], newline=False).decode()) is None
    assert Seal(KEY).open("no seal, 不是") is None


def test_the_key_is_made_once_for_its_owner_alone(tmp_path: Path):
    path = tmp_path / "journal.key"
    sealed = load_seal(path).close("token")
    assert path.stat().st_mode & 0o777 == 0o600
    assert load_seal(path).open(sealed) == "token"


def test_a_key_file_cut_short_is_replaced(tmp_path: Path):
    path = tmp_path / "journal.key"
    path.write_bytes(b"short")
    load_seal(path)
    assert len(path.read_bytes()) == 32
