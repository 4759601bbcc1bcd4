"""Secrets that are changed by one at a time."""

import threading

import pytest

from sessions_app import secrets
from sessions_app.errors import NotFound
from sessions_app.models import Secret
from tests import factories
from tests.staging import Contender, wait_until_blocked


@pytest.mark.django_db(transaction=True)
def test_a_secret_is_changed_by_one_at_a_time() -> None:
    """Whoever waited is given the value that the other one left."""
    project = factories.project()
    secrets.put_secret(project=project, name="counter", value="1")
    holds, go_on = threading.Event(), threading.Event()

    def slowly(value: str) -> str:
        holds.set()
        assert go_on.wait(10)
        return value + "2"

    first = Contender(lambda: secrets.change_secret(project.pk, "counter", slowly))
    assert holds.wait(10)
    second = Contender(lambda: secrets.change_secret(project.pk, "counter", lambda value: value + "3"))
    wait_until_blocked()
    go_on.set()
    assert (first.result(), second.result()) == ("12", "123")
    assert secrets.reveal(project.pk, "counter") == "123"


@pytest.mark.django_db
def test_a_change_that_fails_or_changes_nothing_leaves_the_secret_as_it_is() -> None:
    project = factories.project()
    row, _ = secrets.put_secret(project=project, name="s", value="v")

    def fail(value: str) -> str:
        raise RuntimeError(value)

    with pytest.raises(RuntimeError, match="v"):
        secrets.change_secret(project.pk, "s", fail)
    assert secrets.change_secret(project.pk, "s", lambda value: value) == "v"
    assert Secret.objects.get(pk=row.pk).ciphertext == row.ciphertext
    with pytest.raises(NotFound):
        secrets.change_secret(project.pk, "other", str)
