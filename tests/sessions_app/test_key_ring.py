"""Encryption of secret values with a ring of keys."""

import pytest

from sessions_app.key_ring import (
    MalformedKeyRing,
    UndecryptableSecret,
    decrypt,
    encrypt,
    new_key,
    parse_key_ring,
    reencrypt,
)

OLD, NEW, FOREIGN = (new_key() for _ in range(3))


def test_a_secret_comes_back_and_its_token_does_not_show_it():
    token = encrypt("sk-ü-12345", keys=(OLD,))
    assert decrypt(token, keys=(OLD,)) == "sk-ü-12345"
    assert decrypt(memoryview(token), keys=(OLD,)) == "sk-ü-12345"
    assert b"12345" not in token
    assert encrypt("sk-ü-12345", keys=(OLD,)) != token


def test_the_first_key_encrypts_and_all_decrypt():
    old_token = encrypt("value", keys=(OLD,))
    new_token = encrypt("value", keys=(NEW, OLD))
    assert decrypt(old_token, keys=(NEW, OLD)) == "value"
    assert decrypt(new_token, keys=(NEW,)) == "value"
    with pytest.raises(UndecryptableSecret):
        decrypt(new_token, keys=(OLD,))


def test_after_reencryption_the_old_key_can_be_dropped():
    token = reencrypt(encrypt("value", keys=(OLD,)), keys=(NEW, OLD))
    assert decrypt(token, keys=(NEW,)) == "value"


@pytest.mark.parametrize("use", [decrypt, reencrypt])
def test_a_foreign_or_changed_token_is_told_from_a_value(use):
    token = encrypt("value", keys=(OLD,))
    with pytest.raises(UndecryptableSecret):
        use(token, keys=(FOREIGN,))
    with pytest.raises(UndecryptableSecret):
        use(token[:-4] + b"AAAA", keys=(OLD,))
    with pytest.raises(UndecryptableSecret):
        use(b"", keys=(OLD,))


def test_a_ring_is_read_from_a_comma_separated_list():
    assert parse_key_ring(f" {NEW} ,{OLD},") == (NEW, OLD)


@pytest.mark.parametrize("bad", ["short", OLD + "x", "é" * 32, OLD[:-1]])
def test_a_malformed_key_is_named_by_its_position_and_not_shown(bad):
    with pytest.raises(MalformedKeyRing, match="key 2 of 2") as refused:
        parse_key_ring(f"{NEW},{bad}")
    assert bad not in str(refused.value)
    assert NEW not in str(refused.value)


def test_an_empty_ring_is_refused():
    with pytest.raises(MalformedKeyRing, match="empty"):
        parse_key_ring(" , ")
    with pytest.raises(MalformedKeyRing, match="empty"):
        encrypt("value", keys=())
