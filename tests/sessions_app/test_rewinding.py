"""Going back on a branch while others are at the session."""

import pytest
from django.db import transaction

from sessions_app import leases, log, rewinding
from sessions_app.entry_kinds import SYSTEM
from sessions_app.log import NewEntry
from sessions_app.models import Session
from sessions_app.rewinding import SessionBusy
from tests import factories
from tests.staging import Contender, holding, wait_until_blocked


def with_entries(session: Session, count: int) -> Session:
    with transaction.atomic():
        row = leases.lock_session(session.pk)
        assert row is not None
        log.append(row, *(NewEntry(kind="note", data={"text": str(n)}) for n in range(count)))
        row.save()
    return row


@pytest.mark.django_db(transaction=True)
def test_a_rewind_that_waits_for_a_claim_finds_the_session_busy() -> None:
    """L11: the state is judged under the lock, not before it."""
    session = with_entries(factories.due(), 2)
    claimed = "UPDATE sessions_app_session SET status = 'running', wake_at = NULL WHERE id = %s"
    with holding(claimed, session.pk) as other:
        rewind = Contender(lambda: rewinding.rewind(session=session.pk, to_seq=1, actor=SYSTEM))
        wait_until_blocked()
        other.commit()
    with pytest.raises(SessionBusy):
        rewind.result()
    assert factories.reread(session).head_seq == 2


@pytest.mark.django_db(transaction=True)
def test_two_rewinds_at_once_both_stand_in_the_log_one_after_the_other() -> None:
    """S1: each follows the entry it went back to; the later one decides the branch."""
    session = with_entries(factories.session(), 4)
    with holding("SELECT 1 FROM sessions_app_session WHERE id = %s FOR UPDATE", session.pk) as other:
        both = [
            Contender(lambda seq=seq: rewinding.rewind(session=session.pk, to_seq=seq, actor=SYSTEM))
            for seq in (1, 2)
        ]
        wait_until_blocked(2)
        other.commit()
    heads = sorted(row.head_seq for row in (contender.result() for contender in both))
    moved = list(session.entries.filter(kind="branch_moved").order_by("seq").values_list("seq", "parent_seq"))
    assert heads == [5, 6] == [seq for seq, _ in moved]
    assert {parent for _, parent in moved} == {1, 2}
    row = factories.reread(session)
    assert (row.head_seq, row.next_seq, row.rewound) == (6, 7, True)


@pytest.mark.django_db
def test_a_rewind_with_waiting_input_leaves_it_due() -> None:
    """S11: what waits starts on the branch that was gone back to."""
    session = with_entries(factories.due(), 3)
    row = rewinding.rewind(session=session.pk, to_seq=1, actor=SYSTEM)
    row.refresh_from_db()
    assert (row.status, row.wake_at is not None, row.lease_end) == (
        "queued",
        True,
        {"reason": "branch", "settled": []},
    )
