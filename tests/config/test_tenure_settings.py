"""The settings: read once, with their types and ranges, and refused together."""

from pathlib import Path

import pytest
from cryptography.fernet import Fernet

from config.tenure_settings import InvalidSettings, TenureSettings, load

KEY = Fernet.generate_key().decode()
ROOT = Path("/srv/tenure")


def read(**environ: str) -> TenureSettings:
    return load({"TENURE_DEBUG": "1"} | environ, root=ROOT)


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("1.5", 1.5), ("2500ms", 2.5), ("30s", 30), (" 10 m ", 600)]
)
def test_durations_are_seconds(text, seconds):
    assert read(TENURE_CLAIM_BUDGET=text).claim_budget == seconds


def test_values_have_their_types():
    found = read(
        TENURE_WORKER_CAPACITY="8",
        TENURE_LOG_JSON="yes",
        TENURE_LOG_LEVEL="warning",
        TENURE_ALLOWED_HOSTS="a.example, b.example,",
        TENURE_ALLOWED_NETWORKS="10.0.0.0/8,::1/128",
        TENURE_SECRET_KEYS=f" {KEY} ,",
    )
    assert (found.worker_capacity, found.log_json, found.log_level) == (8, True, "WARNING")
    assert found.allowed_hosts == ("a.example", "b.example")
    assert found.allowed_networks == ("10.0.0.0/8", "::1/128")
    assert found.secret_keys == (KEY,)


def test_what_is_not_set_has_its_default_and_folders_are_below_the_root():
    found = read()
    assert (found.worker_ttl, found.retry_limit, found.secret_keys) == (30, 8, ())
    assert found.artifact_root == "/srv/tenure/.tenure/artifacts"


WRONG = {
    "TENURE_WORKER_TTL": ("soon", "expected a duration"),
    "TENURE_WORKER_CAPACITY": ("0", "must be at least 1"),
    "TENURE_RETRY_LIMIT": ("101", "must be at most 100"),
    "TENURE_CRASH_LIMIT": ("five", "expected a whole number"),
    "TENURE_LOG_JSON": ("maybe", "expected true or false"),
    "TENURE_LOG_LEVEL": ("LOUD", "expected DEBUG"),
    "TENURE_ALLOWED_NETWORKS": ("10.0.0.1/8", "has host bits set"),
    "TENURE_SECRET_KEYS": (f"{KEY},secret-that-is-none", "key 2 of 2"),
    "TENURE_WORKER_TLL": ("30s", "did you mean TENURE_WORKER_TTL"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_value_stops_the_start(name):
    text, words = WRONG[name]
    with pytest.raises(InvalidSettings, match=words) as refused:
        read(**{name: text})
    assert name in str(refused.value)


def test_all_wrong_values_are_named_at_once_and_no_secret_is_shown():
    with pytest.raises(InvalidSettings) as refused:
        read(**{name: text for name, (text, _) in WRONG.items()})
    lines = str(refused.value).splitlines()[1:]
    assert len(lines) == len(WRONG)
    assert all(any(name in line for line in lines) for name in WRONG)
    assert KEY not in str(refused.value)
    assert "secret-that-is-none" not in str(refused.value)


@pytest.mark.parametrize(
    ("environ", "both"),
    [
        ({"TENURE_DEBUG": "0"}, ["TENURE_SECRET_KEY", "TENURE_DEBUG"]),
        ({"TENURE_WORKER_TTL": "12s"}, ["TENURE_HEARTBEAT_INTERVAL", "TENURE_WORKER_TTL"]),
        (
            {"TENURE_WORKER_DRAIN_TIMEOUT": "3s"},
            ["TENURE_WORKER_DRAIN_MARGIN", "TENURE_WORKER_DRAIN_TIMEOUT"],
        ),
        ({"TENURE_RETRY_MAX": "500ms"}, ["TENURE_RETRY_BASE", "TENURE_RETRY_MAX"]),
    ],
)
def test_a_contradiction_names_both_settings(environ, both):
    with pytest.raises(InvalidSettings) as refused:
        read(**environ)
    assert all(name in str(refused.value) for name in both)
