"""Encryption of secret values with a ring of keys."""

import pytest
from cryptography.fernet import Fernet

from sessions_app.key_ring import MalformedKeyRing, UndecryptableSecret, check_key_ring, decrypt, encrypt

OLD, NEW, FOREIGN = (Fernet.generate_key().decode() for _ in range(3))


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


def test_a_foreign_or_changed_token_is_told_from_a_value():
    token = encrypt("value", keys=(OLD,))
    with pytest.raises(UndecryptableSecret):
        decrypt(token, keys=(FOREIGN,))
    with pytest.raises(UndecryptableSecret):
        decrypt(token[:-4] + b"AAAA", keys=(OLD,))
    with pytest.raises(UndecryptableSecret):
        decrypt(b"", keys=(OLD,))


@pytest.mark.parametrize("bad", ["short", OLD + "x", "é" * 32, OLD[:-1]])
def test_a_malformed_key_is_named_by_its_position_and_not_shown(bad):
    with pytest.raises(MalformedKeyRing, match="key 2 of 2") as refused:
        check_key_ring([NEW, bad])
    assert bad not in str(refused.value)
    assert NEW not in str(refused.value)


def test_an_empty_ring_is_no_ring_and_encrypts_nothing():
    check_key_ring([])
    with pytest.raises(MalformedKeyRing, match="empty"):
        encrypt("value", keys=())
