"""Imported, forked and rewound histories, however broken: every request keeps the rules of its protocol.

The history goes the whole way: through the importer into the tables, forked and rewound there at random
entries, read by a held session, repaired and sent through the library to a network that keeps the body.
"""

from typing import Any

import pytest
from django.db import transaction
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sessions_app import leases, log, rewinding, session_service
from sessions_app.engine import state
from sessions_app.engine.resume import repair_orphaned_tool_calls
from sessions_app.entry_kinds import SYSTEM
from sessions_app.history import reading
from sessions_app.log import NewEntry
from sessions_app.models import AgentConfig, Session
from sessions_app.providers.request_rules import check_request
from sessions_app.session_service import Fork
from tests import factories
from tests.sessions_app.engine.generated import transcripts
from tests.sessions_app.history.importable import sent
from tests.sessions_app.providers.test_requests_on_the_wire import (
    TARGETS,
    Recorder,
    recorder,  # noqa: F401 - a fixture
    sent_bodies,
)

pytestmark = pytest.mark.django_db


def started(config: AgentConfig, **more: Any) -> Session:
    return session_service.start_session(project=config.project_id, actor=SYSTEM, config=config.pk, **more)


def request_of(session: Session, text: str) -> list[Any]:
    """What the next model call of the session would be sent, after this was said to it."""
    with transaction.atomic():
        row = leases.lock_session(session.pk)
        assert row is not None
        content = [{"type": "text", "text": text}]
        data = {"input": None, "delivery": "queued", "content": content}
        log.append(row, NewEntry(kind="user_message", data=data))
        row.save()
    messages = state.load({session.pk: 1})[session.pk].context.messages
    view: list[Any] = repair_orphaned_tool_calls(messages)[0]
    return view


@pytest.mark.parametrize("provider", TARGETS)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_every_imported_forked_or_rewound_history_becomes_a_request_that_keeps_the_rules(
    recorder: Recorder,  # noqa: F811
    provider: str,
    data: st.DataObject,
) -> None:
    """S9: an import is whole; a fork and a rewind may cut anywhere, also between a call and its result."""
    messages = sent(data.draw(transcripts(st.sampled_from([provider, provider, "google"]))))
    document = {"instructions": "Be brief.", "model": {"provider": provider, "name": TARGETS[provider]}}
    config = factories.config(document=document)
    history = reading.parse("tenure", messages or [{"role": "user", "content": "hi"}])
    sessions = [started(config, history=history)]
    for _ in range(data.draw(st.integers(0, 3))):
        chosen = factories.reread(data.draw(st.sampled_from(sessions)))
        at = data.draw(st.integers(1, chosen.next_seq - 1))
        if data.draw(st.booleans()):
            sessions.append(started(config, fork=Fork(session=chosen.pk, at_seq=at)))
        else:
            rewinding.rewind(session=chosen.pk, to_seq=at - 1, actor=SYSTEM)
    views = [request_of(session, "go on") for session in sessions]
    for body in sent_bodies(recorder, views, provider):
        assert check_request(provider, body) == []
