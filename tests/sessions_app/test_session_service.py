"""Starting a session and changing what people give it: row, log and due time in one transaction."""

import math
from typing import Any

import pytest

from sessions_app import ids, session_service
from sessions_app.errors import Invalid, NotFound, SessionArchived
from sessions_app.inputs import NewInput
from sessions_app.models import AgentProfile, Entry, Input, Session
from tests import factories
from tests.factories import ACTOR

pytestmark = pytest.mark.django_db

HELLO = [{"type": "text", "text": "hello"}]


def start(**values: Any) -> Session:
    if "config" not in values and "profile" not in values:
        config = factories.config()
        values = {"config": config.pk, "project": config.project_id} | values
    return session_service.start_session(actor=ACTOR, **values)


def log_of(session: Session) -> list[tuple[int, str, Any]]:
    return list(Entry.objects.filter(session=session).order_by("seq").values_list("seq", "kind", "data"))


def test_a_session_starts_idle_with_its_first_entry() -> None:
    """S7: creation is an entry, status and due time are columns of the same transaction."""
    made = start(name="triage", labels={"team": "a"}, priority=3)
    row = factories.reread(made)
    assert (row.status, row.wake_at, row.next_seq, row.head_seq, row.priority) == ("idle", None, 2, 1, 3)
    config = ids.encode("cfg", row.config_id)
    data = {"config": config, "profile": None, "name": "triage", "labels": {"team": "a"}}
    assert log_of(row) == [(1, "session_created", data)]


def test_a_session_that_starts_with_an_input_is_due_at_once() -> None:
    """S11, I1: the row, both entries, the input and the due time are there together; no lease is needed."""
    row = factories.reread(start(input=NewInput(content=HELLO, actor=ACTOR)))
    assert row.status == "queued"
    assert row.wake_at is not None
    assert row.wake_at <= factories.database_now()
    assert row.work_rev == 1
    stored = Input.objects.get(session=row)
    assert [(seq, kind) for seq, kind, _ in log_of(row)] == [(1, "session_created"), (2, "input_received")]
    assert log_of(row)[1][2] == {
        "input": ids.encode("inp", stored.pk),
        "delivery": "queued",
        "content": HELLO,
    }


def test_a_session_takes_the_config_that_its_profile_points_to() -> None:
    config = factories.config()
    profile = AgentProfile.objects.create(project=config.project, name="triage", config=config)
    row = start(project=config.project_id, profile=profile.pk)
    assert (row.config_id, row.profile_id) == (config.pk, profile.pk)


def test_configs_and_profiles_of_others_or_deleted_ones_do_not_exist() -> None:
    config = factories.config()
    foreign = factories.project()
    gone = AgentProfile.objects.create(
        project=config.project, name="gone", config=config, deleted_at=factories.database_now()
    )
    for values in (
        {"config": config.pk, "project": foreign.pk},
        {"profile": gone.pk, "project": gone.project_id},
    ):
        with pytest.raises(NotFound):
            start(**values)
    assert not Session.objects.exists()


def test_a_session_needs_exactly_one_of_profile_and_config() -> None:
    config = factories.config()
    profile = AgentProfile.objects.create(project=config.project, name="triage", config=config)
    for values in ({"config": None}, {"config": config.pk, "profile": profile.pk}):
        with pytest.raises(Invalid):
            start(project=config.project_id, **values)


def test_what_cannot_be_stored_is_replaced_and_nan_refused() -> None:
    """S8: U+0000 and lone surrogates become U+FFFD, keys included; NaN is an error."""
    row = factories.reread(start(name="a\0b", labels={"k\0": "\ud800"}, metadata={"x": ["\0"]}))
    assert (row.name, row.labels, row.metadata) == ("a\ufffdb", {"k\ufffd": "\ufffd"}, {"x": ["\ufffd"]})
    with pytest.raises(Invalid):
        start(metadata={"x": math.nan})


def test_changed_fields_are_one_entry_with_the_new_values() -> None:
    """S7: a change of name, labels, metadata or priority is an entry, and only where something changed."""
    row = start(name="old", metadata={"a": 1})
    changed = {"name": "new", "labels": {"a": "b"}, "priority": -5}
    session_service.update_session(session=row.pk, actor=ACTOR, metadata={"a": 1}, **changed)
    assert log_of(row)[1:] == [(2, "session_updated", {"changes": changed})]
    assert Entry.objects.get(session=row, seq=2).actor == ACTOR
    session_service.update_session(session=row.pk, actor=ACTOR, **changed)
    assert len(log_of(row)) == 2


def test_a_new_priority_moves_the_session_among_the_due_ones() -> None:
    """L2, A20: lower priority first, whatever was due earlier."""
    from sessions_app import leases

    config = factories.config()
    first, second = factories.due(config=config), factories.due(config=config)
    session_service.update_session(session=second.pk, actor=ACTOR, priority=-1)
    worker = factories.worker()
    claimed = leases.claim(worker=worker.pk, limit=1)
    assert [claim.session for claim in claimed] == [second.pk]
    assert factories.reread(first).status == "queued"


def test_an_archived_session_keeps_its_fields() -> None:
    """I6: archived sessions are read-only."""
    row = factories.session(status="archived", archived_at=factories.database_now())
    with pytest.raises(SessionArchived):
        session_service.update_session(session=row.pk, actor=ACTOR, name="new")
    assert log_of(row) == []
