"""Wake-ups over a real PostgreSQL: what is rung is heard, and a lost connection costs only a moment."""

import os
import threading
import time
from collections.abc import Callable, Iterator
from uuid import UUID

import pytest
from django.db import connection, transaction

from config.database_url import KEEPALIVE
from sessions_app import ids, notifier, own_connection, wakeups
from sessions_app import listener as listening
from sessions_app.listener import Listener
from sessions_app.models import Session, SessionStatus
from sessions_app.notifier import EVERYTHING, Notifier, channel_of, payloads
from tests import staging

pytestmark = pytest.mark.django_db(transaction=True)


class Heard:
    """Collects what a subscription hears, and waits for it."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self.words: list[str | None] = []

    def __call__(self, word: str | None) -> None:
        with self._changed:
            self.words.append(word)
            self._changed.notify_all()

    def wait(self, condition: Callable[[list[str | None]], bool], *, within: float = 5.0) -> float:
        """Seconds that it took until `condition(words)` held; fails after `within`."""
        started = time.monotonic()
        with self._changed:
            assert self._changed.wait_for(lambda: condition(self.words), within), self.words
        return time.monotonic() - started

    def forget(self) -> None:
        with self._changed:
            self.words.clear()


@pytest.fixture
def listener() -> Iterator[Listener]:
    listener = Listener()
    yield listener
    listener.close()


@pytest.fixture
def bell() -> Iterator[Notifier]:
    bell = Notifier()
    yield bell
    bell.close()


@pytest.fixture
def relay() -> Iterator[staging.Relay]:
    relay = staging.Relay()
    yield relay
    relay.close()


@pytest.fixture
def process() -> Iterator[None]:
    """The process-wide pair, given back afterwards."""
    yield
    wakeups.close()


def terminate(pid: int | None) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(%s)", [pid])


def test_a_word_reaches_the_subscribers_of_its_kind_and_nobody_else(
    listener: Listener, bell: Notifier
) -> None:
    """C87: LISTEN first, then everybody looks once, then words."""
    work, lease = Heard(), Heard()
    listener.subscribe("work", work)
    listener.subscribe("lease", lease)
    work.wait(lambda words: words == [None])
    lease.wait(lambda words: words == [None])

    bell.ring("lease", ["7"])
    lease.wait(lambda words: words == [None, "7"])
    assert work.words == [None]


def test_a_kind_that_is_subscribed_later_is_heard_on_the_same_connection(
    listener: Listener, bell: Notifier
) -> None:
    first, second = Heard(), Heard()
    listener.subscribe("work", first)
    first.wait(lambda words: words == [None])
    pid = listener.backend_pid

    listener.subscribe("entries", second)
    second.wait(lambda words: words == [None])
    bell.ring("entries", ["x"])
    second.wait(lambda words: words == [None, "x"])
    assert listener.backend_pid == pid


def test_notifications_work_again_after_the_listeners_backend_is_terminated(
    listener: Listener, bell: Notifier
) -> None:
    """C87: after a reconnect everybody looks once, and the next word comes by notification."""
    heard = Heard()
    listener.subscribe("work", heard)
    heard.wait(lambda words: words == [None])
    lost = listener.backend_pid

    terminate(lost)
    heard.wait(lambda words: words == [None, None])
    assert listener.backend_pid not in {None, lost}
    bell.ring("work", ["s2"])
    assert heard.wait(lambda words: words[-1] == "s2") < 1


def test_a_reconnect_listens_before_it_wakes_anybody(listener: Listener) -> None:
    """C87: whoever looks at the tables because of a reconnect can miss nothing that is rung from then on."""
    heard = Heard()

    def look(word: str | None) -> None:
        if word is None:
            # Rung from inside the wake-up: it is heard only if LISTEN came before.
            with staging.another_connection() as other:
                other.execute("SELECT pg_notify(%s, 'rung while looking')", [channel_of("work")])
        heard(word)

    listener.subscribe("work", look)
    heard.wait(lambda words: words == [None, "rung while looking"])
    terminate(listener.backend_pid)
    heard.wait(lambda words: words == [None, "rung while looking"] * 2)


def test_the_notifier_sends_what_waited_once_its_connection_is_back(
    listener: Listener, bell: Notifier
) -> None:
    heard = Heard()
    listener.subscribe("work", heard)
    heard.wait(lambda words: words == [None])
    bell.ring("work", ["before"])
    heard.wait(lambda words: words == [None, "before"])

    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name = 'tenure notify' AND datname = current_database()"
        )
    bell.ring("work", ["after"])
    heard.wait(lambda words: words[-1] == "after")


def test_a_failing_callback_harms_nobody_else(listener: Listener, bell: Notifier) -> None:
    heard = Heard()

    def broken(word: str | None) -> None:
        raise ValueError(word)

    listener.subscribe("work", broken)
    listener.subscribe("work", heard)
    heard.wait(lambda words: words == [None])
    bell.ring("work", ["a"])
    heard.wait(lambda words: words == [None, "a"])


def test_nothing_is_heard_after_the_subscription_is_removed(listener: Listener, bell: Notifier) -> None:
    gone, stays = Heard(), Heard()
    remove = listener.subscribe("work", gone)
    listener.subscribe("work", stays)
    gone.wait(lambda words: words == [None])
    stays.wait(lambda words: words == [None])
    remove()
    bell.ring("work", ["a"])
    stays.wait(lambda words: words == [None, "a"])
    assert gone.words == [None]


def test_a_server_that_stops_answering_is_left(
    listener: Listener, bell: Notifier, relay: staging.Relay, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C87: a half-open connection is silent like an idle one; only a ping tells them apart."""
    monkeypatch.setattr("sessions_app.listener.PING_EVERY", 0.05)
    monkeypatch.setattr("sessions_app.listener.ANSWER_WITHIN", 0.3)
    monkeypatch.setattr(own_connection, "connect", lambda *, purpose: relay.connect(autocommit=True))
    heard = Heard()
    listener.subscribe("work", heard)
    heard.wait(lambda words: words == [None])
    lost = listener.backend_pid

    relay.freeze()
    heard.wait(lambda words: words == [None, None])
    assert listener.backend_pid not in {None, lost}
    bell.ring("work", ["s2"])
    heard.wait(lambda words: words[-1] == "s2")


def test_a_half_open_connection_is_noticed_within_fifteen_seconds() -> None:
    """C87: ping, patience and the kernel's own limit, added up."""
    assert listening.PING_EVERY + listening.ANSWER_WITHIN < 15
    kernel = KEEPALIVE
    assert kernel["keepalives_idle"] + kernel["keepalives_interval"] * kernel["keepalives_count"] < 15
    assert kernel["tcp_user_timeout"] < 15_000


def test_pings_are_no_transactions(listener: Listener, monkeypatch: pytest.MonkeyPatch) -> None:
    """The idle budget of a worker and a sweeper, 3 transactions a second, is not spent on listening."""
    monkeypatch.setattr("sessions_app.listener.PING_EVERY", 0.005)
    pings = threading.Semaphore(0)
    original = listening._Wire._sync

    def counted(self: listening._Wire, waking: list[listening._Subscription]) -> None:
        original(self, waking)
        pings.release()

    monkeypatch.setattr(listening._Wire, "_sync", counted)
    heard = Heard()
    listener.subscribe("work", heard)
    heard.wait(lambda words: words == [None])
    for _ in range(50):
        assert pings.acquire(timeout=5)
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT backend_xid, state, query FROM pg_stat_activity WHERE pid = %s", [listener.backend_pid]
        )
        # The last statement it ran is still the LISTEN: nothing was executed since.
        assert cursor.fetchall() == [(None, "idle", "LISTEN tenure_work")]


def test_words_are_sent_once_however_often_they_were_rung_and_fit_the_limit() -> None:
    words = {str(ids.new_id()) for _ in range(1000)}
    made = payloads(words)
    assert all(len(payload) < 8000 for payload in made)
    assert sorted(",".join(made).split(",")) == sorted(words)
    assert len(made) == 5


def test_ringing_for_nobody_sends_nothing(bell: Notifier) -> None:
    """A step commit whose leases were all lost rings for no session; that must not trouble the connection."""
    bell.ring("entries", [])
    assert bell._thread is None
    assert bell.flush(limit=0.1)


def test_a_word_that_is_rung_while_the_notifier_is_busy_is_sent_once_more_and_no_oftener(
    listener: Listener, bell: Notifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard = Heard()
    listener.subscribe("entries", heard)
    heard.wait(lambda words: words == [None])
    connect, busy, free = own_connection.connect, threading.Event(), threading.Event()

    def slow(*, purpose: str) -> object:
        busy.set()
        assert free.wait(5)
        return connect(purpose=purpose)

    monkeypatch.setattr(own_connection, "connect", slow)
    bell.ring("entries", ["a"])
    assert busy.wait(5)
    for _ in range(100):
        bell.ring("entries", ["a"])
    free.set()
    assert bell.flush(limit=5)
    bell.ring("entries", ["last"])
    heard.wait(lambda words: words[-1] == "last")
    assert heard.words == [None, "a", "a", "last"]


def test_a_flood_of_words_becomes_one_word_for_everything(
    listener: Listener, bell: Notifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The queue is bounded: past it, all subscribers of the kind look once."""
    monkeypatch.setattr(notifier, "WORDS_KEPT", 3)
    heard = Heard()
    listener.subscribe("entries", heard)
    heard.wait(lambda words: words == [None])
    bell.ring("entries", ["a", "b", "c", "d"])
    heard.wait(lambda words: words == [None, None])
    assert EVERYTHING not in heard.words


def test_a_commit_rings_for_a_due_session_and_a_rollback_does_not(process: None) -> None:
    due, entries, lease = Heard(), Heard(), Heard()
    for kind, heard in ((wakeups.WORK, due), (wakeups.ENTRIES, entries), (wakeups.LEASE, lease)):
        wakeups.subscribe(kind, heard)
        heard.wait(lambda words: words == [None])
    kept = Session(id=ids.new_id(), status=SessionStatus.QUEUED)
    undone = Session(id=ids.new_id(), status=SessionStatus.QUEUED)

    with transaction.atomic():
        wakeups.after_commit(undone)
        wakeups.on_lease_end(worker=1, session=undone.id)
        transaction.set_rollback(True)
    with transaction.atomic():
        wakeups.after_commit(kept)
        wakeups.on_lease_end(worker=2, session=kept.id)
        assert wakeups.flush()
        assert entries.words == [None]

    entries.wait(lambda words: words == [None, str(kept.id)])
    due.wait(lambda words: words == [None, "!"])
    lease.wait(lambda words: words == [None, "2"])


def test_a_session_that_only_grew_rings_no_worker(process: None) -> None:
    due, entries = Heard(), Heard()
    wakeups.subscribe(wakeups.WORK, due)
    wakeups.subscribe(wakeups.ENTRIES, entries)
    due.wait(lambda words: words == [None])
    entries.wait(lambda words: words == [None])
    with transaction.atomic():
        wakeups.after_commit(Session(id=UUID(int=5), status=SessionStatus.WAITING))
    entries.wait(lambda words: words == [None, str(UUID(int=5))])
    assert due.words == [None]


@pytest.mark.processes
def test_a_forked_child_rings_over_a_connection_of_its_own(process: None) -> None:
    heard = Heard()
    wakeups.subscribe(wakeups.LEASE, heard)
    heard.wait(lambda words: words == [None])
    wakeups.ring_lease_end(1)
    heard.wait(lambda words: words == [None, "1"])

    child = os.fork()
    if child == 0:
        status = 1
        try:
            wakeups.ring_lease_end(2)
            status = 0 if wakeups.flush(limit=5) else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    heard.wait(lambda words: words == [None, "1", "2"])
    # The parent's connections are as they were.
    wakeups.ring_lease_end(3)
    heard.wait(lambda words: words == [None, "1", "2", "3"])


def test_calls_that_wait_for_a_backend_ring_for_their_project() -> None:
    """T6: whoever waits for calls of one project is woken by those alone."""
    heard = Heard()
    project = ids.new_id()
    end = wakeups.subscribe(wakeups.CALLS, heard)
    try:
        heard.wait(lambda words: words == [None])
        heard.forget()
        wakeups.ring_calls([])
        wakeups.ring_calls([project])
        heard.wait(lambda words: words == [str(project)])
    finally:
        end()


def test_payloads_arrive_whole_and_in_order_and_only_so_many_wait(listener: Listener, bell: Notifier) -> None:
    """S6: pieces of replies are JSON, which is not taken apart at its commas; words go on beside them."""
    heard, words = Heard(), Heard()
    listener.subscribe(wakeups.DELTAS, heard)
    listener.subscribe(wakeups.ENTRIES, words)
    heard.wait(lambda found: found == [None])
    words.wait(lambda found: found == [None])
    sent = [f'[["s","c",{number},0,"text","a, b"]]' for number in range(30)]
    bell.post(wakeups.DELTAS, sent)
    bell.ring(wakeups.ENTRIES, ["one"])
    heard.wait(lambda found: len(found) == 31)
    assert heard.words[1:] == sent
    words.wait(lambda found: found == [None, "one"])
    quiet = Notifier()
    quiet._begin = lambda: None  # type: ignore[method-assign]
    quiet.post(wakeups.DELTAS, map(str, range(notifier.POSTS_KEPT + 10)))
    assert [payload for _, payload in quiet._posts][:1] == ["10"]
