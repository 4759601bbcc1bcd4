"""DATABASE_URL is read as libpq reads it, and a wrong one is named without telling its password."""

import pytest
from django.core.exceptions import ImproperlyConfigured

from config.database_url import databases, parse


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("postgres://u@h:1/db", {"USER": "u", "HOST": "h", "PORT": "1", "NAME": "db"}),
        ("postgresql://u:p%40ss%2Fw@h/db", {"USER": "u", "PASSWORD": "p@ss/w", "HOST": "h", "NAME": "db"}),
        ("postgresql://u@/db?host=%2Frun%2Fpg&port=5433", {"USER": "u", "HOST": "/run/pg", "PORT": "5433"}),
        ("postgresql://u@[::1]:5432/db", {"HOST": "::1", "PORT": "5432"}),
        ("postgresql://u@one:1,two:2/db", {"HOST": "one,two", "PORT": "1,2"}),
        ("postgresql://u@h/db%20name", {"NAME": "db name"}),
    ],
)
def test_each_form_of_url_gives_its_fields(url: str, expected: dict[str, str]) -> None:
    entry = parse(url)
    assert expected.items() <= entry.items()
    assert entry["OPTIONS"] == {}


def test_what_is_not_an_address_is_kept_as_connection_option() -> None:
    entry = parse("postgresql://u@h/db?sslmode=verify-full&options=-c%20work_mem%3D8MB&connect_timeout=3")
    assert entry["OPTIONS"] == {
        "sslmode": "verify-full",
        "options": "-c work_mem=8MB",
        "connect_timeout": "3",
    }


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        ("mysql://u:hunter2@h/db", "must start with postgresql://"),
        ("u:hunter2@h/db", "must start with postgresql://"),
        ("postgresql://u:hunter2@h", "names no database"),
        ("postgresql://u:hunter2@h:port/db", "port that is not a number"),
        ("postgresql://u:hunter2@h:70000/db", "port that is not a number"),
        ("postgresql://u:hunter2@h/db?nonsense=1", "invalid URI query parameter"),
        ("postgresql://u:%zzhunter2@h/db", "invalid percent-encoded token"),
    ],
)
def test_a_wrong_url_is_refused_with_the_reason_and_without_the_password(url: str, complaint: str) -> None:
    with pytest.raises(ImproperlyConfigured) as refused:
        parse(url, name="SOME_URL")
    assert str(refused.value).startswith("SOME_URL ")
    assert complaint in str(refused.value)
    assert "hunter2" not in str(refused.value)


def test_the_environment_gives_the_default_database_alone() -> None:
    found = databases({"DATABASE_URL": " postgresql://u@h/db "})
    assert list(found) == ["default"]
    assert "TEST" not in found["default"]


def test_options_of_the_caller_win_over_those_of_the_url() -> None:
    found = databases(
        {"DATABASE_URL": "postgresql://u@h/db?application_name=url&sslmode=require"},
        options={"application_name": "caller", "pool": True},
    )
    options = found["default"]["OPTIONS"]
    assert (options["application_name"], options["sslmode"], options["pool"]) == ("caller", "require", True)


def test_a_silent_network_is_noticed_soon_unless_the_url_says_otherwise() -> None:
    found = databases({"DATABASE_URL": "postgresql://u@h/db?tcp_user_timeout=99"})
    assert found["default"]["OPTIONS"]["keepalives_idle"] == 4
    assert found["default"]["OPTIONS"]["tcp_user_timeout"] == "99"


def test_a_direct_url_is_a_second_alias_that_mirrors_the_first_in_tests() -> None:
    found = databases(
        {"DATABASE_URL": "postgresql://u@pooler/db", "TENURE_DIRECT_DATABASE_URL": "postgresql://u@server/db"}
    )
    assert found["direct"]["HOST"] == "server"
    assert found["direct"]["TEST"] == {"MIRROR": "default"}


def test_the_name_of_the_test_database_can_be_chosen() -> None:
    found = databases({"DATABASE_URL": "postgresql://u@h/db", "TENURE_TEST_DATABASE": "mine"})
    assert found["default"]["TEST"] == {"NAME": "mine"}
