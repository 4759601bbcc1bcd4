"""S11: the due time, as a table over the facts."""

from datetime import UTC, datetime, timedelta

import pytest

from sessions_app.due import Due, Facts, decide

SOON = datetime(2030, 1, 1, tzinfo=UTC)
LATER = SOON + timedelta(hours=1)
LIMIT = ({"kind": "limit", "id": "apr_2", "since": "2030-01-01T00:00:00Z"},)
APPROVAL = ({"kind": "approval", "id": "apr_1", "since": "2030-01-01T00:00:00Z"},)


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        pytest.param(Facts(), Due(None, "idle"), id="nothing"),
        pytest.param(Facts(queued=True), Due("now", "queued"), id="input starts a turn"),
        pytest.param(Facts(steering=True), Due("now", "queued"), id="steering starts one too"),
        pytest.param(Facts(open_turn=True), Due("now", "queued"), id="a finished batch or a first call"),
        pytest.param(
            Facts(open_turn=True, limit_asked=LIMIT, steering=True, retry_at=SOON),
            Due(None, "waiting", LIMIT),
            id="R8: people are asked, and steering waits for them",
        ),
        pytest.param(
            Facts(open_turn=True, limit_asked=LIMIT, open_calls=1),
            Due(None, "waiting"),
            id="calls come first",
        ),
        pytest.param(
            Facts(open_turn=True, ready_call=True, open_calls=2), Due("now", "queued"), id="a ready call"
        ),
        pytest.param(
            Facts(open_turn=True, open_calls=1, awaiting=APPROVAL),
            Due(None, "waiting", APPROVAL),
            id="a person",
        ),
        pytest.param(
            Facts(open_turn=True, open_calls=1, awaiting=APPROVAL, deadline=SOON, steering=True, queued=True),
            Due(SOON, "waiting", APPROVAL),
            id="no input overtakes an open call; its deadline wakes",
        ),
        pytest.param(Facts(open_turn=True, retry_at=LATER), Due(LATER, "backing_off"), id="a retry time"),
        pytest.param(
            Facts(open_turn=True, retry_at=LATER, queued=True),
            Due(LATER, "backing_off"),
            id="R6: queued input waits",
        ),
        pytest.param(
            Facts(open_turn=True, retry_at=LATER, steering=True),
            Due("now", "queued"),
            id="A50: steering does not",
        ),
        pytest.param(
            Facts(queued=True, crash_limited=True),
            Due(None, "waiting", ({"kind": "crash_limit"},)),
            id="R9: inherited input at the crash limit",
        ),
        pytest.param(Facts(crash_limited=True), Due(None, "idle"), id="R9: nothing inherited"),
        pytest.param(Facts(compaction=True), Due("now", "queued"), id="R5: a compaction on request"),
        pytest.param(Facts(compaction=True, retry_at=LATER), Due(LATER, "backing_off"), id="R5: its retry"),
        pytest.param(
            Facts(compaction=True, retry_at=LATER, queued=True),
            Due("now", "queued"),
            id="input does not wait",
        ),
        pytest.param(Facts(compaction=True, crash_limited=True), Due(None, "idle"), id="R9: nor is it made"),
        pytest.param(Facts(archived=True, queued=True), Due(None, "archived"), id="archived"),
    ],
)
def test_what_an_unleased_session_is_due_for(facts, expected):
    """S11, S7"""
    assert decide(facts) == expected
