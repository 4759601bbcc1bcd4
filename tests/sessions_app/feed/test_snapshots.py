"""Snapshots as positions: what they see, how they move, and that they survive the way to a client and back."""

from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessions_app.feed.cursors import MAX_LENGTH, InvalidCursor, ProjectCursor, read_seq
from sessions_app.feed.snapshots import PACKED_LIMIT, START, Malformed, Snapshot, pack, unpack

numbers = st.integers(0, 200)


@st.composite
def snapshots(draw: st.DrawFn, *, most: int = 200) -> Snapshot:
    xmax = draw(st.integers(0, most))
    running = draw(st.sets(st.integers(0, max(0, xmax - 1)), max_size=20)) if xmax else set()
    return Snapshot(xmax, tuple(sorted(running)))


def test_a_snapshot_reads_what_postgresql_writes() -> None:
    found = Snapshot.parse("10:20:10,14,15")
    assert found == Snapshot(20, (10, 14, 15))
    assert str(found) == "10:20:10,14,15"
    assert Snapshot.parse("20:20:") == Snapshot(20)
    assert [found.sees(xid) for xid in (9, 10, 11, 14, 19, 20)] == [True, False, True, False, True, False]
    assert not START.sees(3)


@given(now=snapshots(), below=numbers, at=snapshots())
def test_going_on_sees_what_was_seen_and_what_ended_below_the_cut(
    at: Snapshot, now: Snapshot, below: int
) -> None:
    """F2: nothing that was seen is unseen, nothing that still runs or lies behind the cut is taken for seen."""
    moved = at.advanced(now, below=below)
    for xid in range(210):
        assert moved.sees(xid) == (at.sees(xid) or (xid < below and now.sees(xid))), xid


@given(at=snapshots(), now=snapshots())
def test_going_on_to_the_end_of_a_later_snapshot_is_that_snapshot(at: Snapshot, now: Snapshot) -> None:
    """What a follower compares its place with, so it has to be the same value and not only mean the same."""
    later = at.advanced(now, below=now.xmax)
    assert at.advanced(later, below=later.xmax) == later
    assert START.advanced(now, below=now.xmax) == now


def test_a_snapshot_of_very_many_transactions_ends_early_and_loses_none() -> None:
    crowded = Snapshot(3_000_000, tuple(range(10, 2_900_000, 1000)))
    found = crowded.bounded()
    assert len(found.packed()) <= PACKED_LIMIT
    assert all(crowded.sees(xid) for xid in range(found.xmax) if found.sees(xid))
    assert found.xmax > 10
    assert Snapshot(50, (1, 2, 3)).bounded() == Snapshot(50, (1, 2, 3))


@given(at=snapshots(), page=st.none() | snapshots(), taken=st.integers(1, 5000))
def test_a_cursor_comes_back_as_it_went(at: Snapshot, page: Snapshot | None, taken: int) -> None:
    project = uuid4()
    cursor = ProjectCursor(at) if page is None else ProjectCursor(at, page, taken)
    assert ProjectCursor.read(cursor.text(project), project=project) == cursor
    with pytest.raises(InvalidCursor, match="another feed"):
        ProjectCursor.read(cursor.text(project), project=UUID(int=0))


def test_a_cursor_fits_whatever_runs() -> None:
    crowded = Snapshot((1 << 40) + 600_000, tuple((1 << 40) + number * 20_000 for number in range(30)))
    many = Snapshot(1 << 40, tuple((1 << 40) - 500 + number for number in range(490)))
    text = ProjectCursor(crowded.bounded(), many.bounded(), 499).text(uuid4())
    assert len(text) <= MAX_LENGTH


@pytest.mark.parametrize(
    "text", ["", "x", "1", "AA", "A" * 1025, "é", "AQ==", "=", "-1", "\x00", "AQ" + "_" * 60, " "]
)
def test_junk_is_no_cursor(text: str) -> None:
    with pytest.raises(InvalidCursor) as wrong:
        ProjectCursor.read(text, project=uuid4())
    assert wrong.value.errors[0]["code"] == "malformed"


@given(st.binary(max_size=60))
def test_no_bytes_do_harm(junk: bytes) -> None:
    import base64

    text = base64.urlsafe_b64encode(b"\x01" + bytes(16) + junk).rstrip(b"=").decode()
    try:
        found = ProjectCursor.read(text, project=UUID(int=0))
    except InvalidCursor:
        return
    assert all(0 <= xid < found.at.xmax for xid in found.at.running)


def test_the_cursor_of_a_session_is_its_seq() -> None:
    assert read_seq("0") == 0
    assert read_seq("7") == 7
    for text in ("", "-1", "1.5", "²", "99999999999999999", " 1"):
        with pytest.raises(InvalidCursor):
            read_seq(text)


@given(st.lists(st.integers(0, (1 << 63) - 1)))
def test_numbers_are_packed_without_loss(given_numbers: list[int]) -> None:
    assert unpack(b"".join(map(pack, given_numbers))) == given_numbers


def test_half_a_number_is_malformed() -> None:
    with pytest.raises(Malformed):
        unpack(b"\x80")
    with pytest.raises(Malformed):
        unpack(b"\xff" * 9 + b"\x7f")
