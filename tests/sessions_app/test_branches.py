"""Where a branch leads: through rewinds, through the sessions that it was forked from, and how it is paged."""

import random
from typing import Any
from uuid import UUID

import pytest
from django.db import transaction
from hypothesis import given
from hypothesis import strategies as st

from sessions_app import branches, leases, log, rewinding
from sessions_app.entry_kinds import SYSTEM
from sessions_app.models import Entry, Session
from tests import factories


@given(data=st.data(), moves=st.integers(0, 6))
def test_the_runs_of_a_log_are_the_path_along_the_parents(data: st.DataObject, moves: int) -> None:
    """S1: the arithmetic agrees with walking entry by entry."""
    parents: list[int] = []
    moved: list[tuple[int, int]] = []
    for _ in range(moves + 1):
        parents += range(len(parents), len(parents) + data.draw(st.integers(0, 4)))
        back = data.draw(st.integers(0, len(parents)))
        parents.append(back)
        moved.append((len(parents), back))
    head = data.draw(st.integers(0, len(parents)))
    walked = []
    at = head
    while at:
        walked.append(at)
        at = parents[at - 1]
    runs = branches.runs(head, data.draw(st.permutations(moved)))
    assert [seq for first, last in runs for seq in range(first, last + 1)] == walked[::-1]


def note(session: Session | UUID, *texts: str) -> None:
    with transaction.atomic():
        row = leases.lock_session(session.pk if isinstance(session, Session) else session)
        assert row is not None
        log.append(row, *(log.NewEntry(kind="note", data={"text": text}) for text in texts))
        row.save()


def forked(parent: Session, seq: int) -> Session:
    return factories.session(config=parent.config, forked_from=parent, forked_from_seq=seq)


def walked(session: Session) -> list[tuple[UUID, int]]:
    """The branch, entry by entry."""
    path: list[tuple[UUID, int]] = []
    row: Session | None = Session.objects.get(pk=session.pk)
    assert row is not None
    at: int | None = row.head_seq
    while row is not None:
        while at:
            path.append((row.pk, at))
            at = Entry.objects.get(session=row, seq=at).parent_seq
        row, at = row.forked_from, row.forked_from_seq
    return path[::-1]


@pytest.mark.django_db
def test_forks_of_forks_of_rewound_sessions_follow_all_of_their_parents() -> None:
    """S1: nothing is copied; each entry stands once on the path, and positions and places grow along it."""
    draw = random.Random(7)
    known: list[Session] = [factories.session()]
    note(known[0], "a", "b", "c")
    for _ in range(40):
        chosen = factories.reread(draw.choice(known))
        match draw.randrange(3):
            case 0:
                note(chosen, *"xyz"[: draw.randrange(1, 4)])
            case 1:
                rewinding.rewind(session=chosen.pk, to_seq=draw.randrange(0, chosen.next_seq), actor=SYSTEM)
            case _ if chosen.next_seq > 1:
                known.append(forked(chosen, draw.randrange(1, chosen.next_seq)))
    for session in known:
        segments = branches.of_session(session.pk)
        path = walked(session)
        length = branches.length(segments)
        assert length == len(path)
        whole = branches.between(segments, after=0, until=length)
        assert [(row.session_id, row.seq) for _, row in whole] == path
        assert [place for place, _ in whole] == list(range(1, length + 1))
        for _ in range(5):
            after = draw.randrange(0, length + 1)
            until = draw.randrange(after, length + 1)
            assert branches.between(segments, after, until) == whole[after:until]
        back = [
            row.position for row in branches.newest_first(segments, kinds=["note", "branch_moved"], window=2)
        ]
        assert back == sorted(set(back), reverse=True)
        assert len(back) == length
        own = [part for part in segments if part.session == session.pk]
        assert all(part.shift == 0 for part in own)


@pytest.mark.django_db
def test_what_a_parent_does_after_it_was_forked_does_not_reach_the_fork() -> None:
    parent = factories.session()
    note(parent, "a", "b")
    child = forked(parent, 2)
    note(child, "mine")
    before = walked(child)
    rewinding.rewind(session=parent.pk, to_seq=1, actor=SYSTEM)
    note(parent, "later")
    segments = branches.of_session(child.pk)
    found = branches.between(segments, 0, branches.length(segments))
    assert [(row.session_id, row.seq) for _, row in found] == before
    texts: list[Any] = [row.data["text"] for _, row in found]
    assert texts == ["a", "b", "mine"]
