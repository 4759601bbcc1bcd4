"""What must be true after a soak. Each broken rule becomes a sentence, with the session that it is about.

The identities come from three sides that know nothing of each other: what the API accepted (talk), what went
over the wire (proxy), and what the tables say.
"""

from collections import Counter
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path

from django.conf import settings
from django.db.models import Sum

from bench.report import Report
from bench.soak.faults import KINDS
from bench.soak.mock import is_an_answer
from bench.soak.proxy import Exchange
from bench.soak.talk import Said, Talk
from sessions_app import ids, invariants
from sessions_app.models import (
    Entry,
    Input,
    InputState,
    ModelCall,
    ModelCallState,
    Project,
    Session,
    Turn,
    TurnStatus,
)
from sessions_app.providers.request_rules import check_request

_SHOWN = 8
_DONE = {ModelCallState.SUCCEEDED, ModelCallState.FAILED}


def judge(report: Report, talk: Talk, *, project: Project, ledger: Path) -> None:
    """Print the identities and what is wrong."""
    for name, violations in (
        ("inputs", _inputs(report, talk.said, project)),
        ("turns", _turns(report, talk, project)),
        ("model calls", _model_calls(report, talk.proxy.exchanges, project)),
        ("requests", _requests(report, talk.proxy.exchanges, talk.proxy.strangers)),
        ("replies", _replies(project)),
        ("tools", _effects(report, project, ledger)),
        ("invariants", _invariants(report, project)),
    ):
        found = list(violations)
        for sentence in found[:_SHOWN]:
            report.say(f"  violated: {name}: {sentence}")
        if found:
            more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
            report.expect(False, f"{name}: {found[0]}{more}")
        report.rows.append({"what": f"violations of {name}", "found": found})


def _inputs(report: Report, said: list[Said], project: Project) -> Iterator[str]:
    """inputs accepted = delivered + cancelled + rejected + waiting, and none that the API did not accept."""
    rows = {ids.encode("inp", row.pk): row for row in Input.objects.filter(session__project=project)}
    accepted = {name for one in said for name in (*one.queued, *one.steering)}
    states = Counter(row.state for row in rows.values())
    report.row(
        "inputs",
        accepted=len(accepted),
        delivered=states[InputState.DELIVERED],
        cancelled=states[InputState.CANCELLED],
        rejected=states[InputState.REJECTED],
        waiting=states[InputState.RECEIVED],
    )
    if len(accepted) != sum(states.values()):
        yield f"{len(accepted)} were accepted and {sum(states.values())} are stored"
    for name in sorted(accepted ^ set(rows)):
        yield f"{name} was {'accepted and is not stored' if name in accepted else 'stored and never accepted'}"
    if waiting := states[InputState.RECEIVED]:
        yield f"{waiting} still wait"


def _turns(report: Report, talk: Talk, project: Project) -> Iterator[str]:
    """Each queued input has one turn of its own, in order; a turn fails only when its retries are used up."""
    said = talk.said
    rows = list(Turn.objects.filter(session__project=project))
    by_id = {row.pk: row for row in rows}
    ends = Counter((row.status, row.reason) for row in rows)
    inputs = {row.pk: row for row in Input.objects.filter(session__project=project)}
    report.row(
        "turns",
        inputs_queued=sum(len(one.queued) for one in said),
        begun_by_steering=len(rows) - sum(len(one.queued) for one in said),
        ended=sum(count for (status, _), count in ends.items() if status != TurnStatus.RUNNING),
        succeeded=sum(count for (status, _), count in ends.items() if status == TurnStatus.SUCCEEDED),
        failed=sum(count for (status, _), count in ends.items() if status == TurnStatus.FAILED),
    )
    for one in said:
        found = (inputs.get(ids.decode("inp", name)) for name in one.queued)
        own = [by_id.get(item.turn_id) for item in found if item is not None and item.turn_id is not None]
        numbers = [turn.number for turn in own if turn is not None]
        if len(numbers) != len(one.plan.turns) or numbers != sorted(set(numbers)):
            yield f"{one.session}: its {len(one.plan.turns)} queued inputs began the turns {numbers}"
    used = {row.turn_id for row in inputs.values()}
    for row in rows:
        if row.pk not in used:
            yield f"turn {row.number} of {ids.encode('ses', row.session_id)} belongs to no input"
    yield from _failed_turns(report, said, [row for row in rows if row.status == TurnStatus.FAILED])
    yield from _failed_list(talk, project)
    for row in rows:
        if row.status not in {TurnStatus.SUCCEEDED, TurnStatus.FAILED}:
            yield f"turn {row.number} of {ids.encode('ses', row.session_id)} is {row.status}, {row.reason}"


def _failed_turns(report: Report, said: list[Said], failed: list[Turn]) -> Iterator[str]:
    """Each gave up behind its last retry and not before, and the API says so."""
    limit = settings.TENURE.retry_limit
    shown = {turn["id"]: turn["reason"] for one in said for turn in one.turns if turn["status"] == "failed"}
    for row in failed:
        name, session = ids.encode("trn", row.pk), ids.encode("ses", row.session_id)
        failures = _failures_at_the_end(row)
        report.row("failed turn", turn=row.number, session=session, reason=row.reason, failed_calls=failures)
        if row.reason != "retries_exhausted":
            yield f"turn {row.number} of {session} failed for {row.reason}: {row.error}"
        elif failures < limit + 1:
            yield f"turn {row.number} of {session} gave up after {failures} failures, not {limit + 1}"
        if shown.pop(name, None) != row.reason:
            yield f"the API does not show turn {row.number} of {session} as failed for {row.reason}"
    for name in shown:
        yield f"the API shows turn {name} as failed, its row does not"


def _failures_at_the_end(turn: Turn) -> int:
    """Failed calls in a row, up to the turn's last one; what a kill interrupted is no failure."""
    calls = ModelCall.objects.filter(turn=turn).exclude(state=ModelCallState.INTERRUPTED)
    states = calls.order_by("-started_at", "-pk").values_list("state", flat=True)
    return len(list(takewhile(lambda state: state == ModelCallState.FAILED, states)))


def _failed_list(talk: Talk, project: Project) -> Iterator[str]:
    """The list of failed sessions has those whose last turn failed, each once."""
    rows = Session.objects.filter(project=project, last_turn__status=TurnStatus.FAILED)
    wanted = sorted(ids.encode("ses", key) for key in rows.values_list("pk", flat=True))
    if sorted(talk.failed_sessions) != wanted:
        yield f"the API lists the sessions {sorted(talk.failed_sessions)} as failed, not {wanted}"


def _model_calls(report: Report, exchanges: list[Exchange], project: Project) -> Iterator[str]:
    """model calls saved = the turns' own count; and they are what went over the wire."""
    states = Counter(ModelCall.objects.filter(session__project=project).values_list("state", flat=True))
    saved = sum(states[state] for state in _DONE)
    counted = Turn.objects.filter(session__project=project).aggregate(sum=Sum("model_calls"))["sum"] or 0
    by_sessions = Session.objects.filter(project=project).aggregate(sum=Sum("model_calls"))["sum"] or 0
    failed, succeeded = states[ModelCallState.FAILED], states[ModelCallState.SUCCEEDED]
    interrupted = states[ModelCallState.INTERRUPTED]
    report.row(
        "model calls",
        saved=saved,
        counted_by_turns=counted,
        replies=succeeded,
        failed=failed,
        interrupted=interrupted,
        requests=len(exchanges),
    )
    if not saved == counted == by_sessions:
        yield f"{saved} are saved, the turns count {counted} and the sessions {by_sessions}"
    if states[ModelCallState.STARTED]:
        yield f"{states[ModelCallState.STARTED]} are still open"
    # A call whose worker was killed may have got its answer, a fault or nothing.
    if not saved <= len(exchanges) <= saved + interrupted:
        yield f"{len(exchanges)} requests were sent for {saved} saved and {interrupted} interrupted calls"
    must_fail = sum(one.fails is True for one in exchanges)
    may_fail = sum(one.fails is None for one in exchanges)
    if not must_fail - interrupted <= failed <= must_fail + may_fail:
        yield f"{failed} have failed, {must_fail} answers had to fail and {may_fail} could"


def _requests(report: Report, exchanges: list[Exchange], strangers: list[str]) -> Iterator[str]:
    """Every request passes the request rules, whatever the answers before it were like."""
    faults = Counter(one.fault.kind for one in exchanges if one.fault is not None)
    protocols = Counter(one.protocol for one in exchanges)
    report.row("requests", **{name.replace("-", "_"): count for name, count in sorted(protocols.items())})
    total = sum(faults.values())
    report.row(
        "faults",
        share=total / max(1, len(exchanges)),
        **{kind.replace(" ", "_"): faults[kind] for kind in KINDS},
    )
    for stranger in strangers:
        yield f"nobody's request: {stranger}"
    for one in exchanges:
        for broken in check_request(one.protocol, one.body):
            yield f"{one.session} over {one.protocol}: {broken}"
        if one.status not in {None, 200}:
            yield f"{one.session} over {one.protocol}: the mock answered {one.status}"


def _replies(project: Project) -> Iterator[str]:
    """A saved reply is one of the mock's answers, whole: no half stream ever passed for one."""
    messages = Entry.objects.filter(session__project=project, kind="assistant_message")
    for entry in messages.only("session_id", "seq", "data").iterator():
        if not is_an_answer(entry.data["content"]):
            name = ids.encode("ses", entry.session_id)
            yield f"entry {entry.seq} of {name} is none of the mock's answers: {str(entry.data)[:200]}"


def _effects(report: Report, project: Project, ledger: Path) -> Iterator[str]:
    """The tool that nobody may repeat ran once for each success, and at most once where nobody knows."""
    results = Entry.objects.filter(session__project=project, kind="tool_result", data__name="dev_append")
    outcomes = Counter(results.values_list("data__outcome", flat=True))
    written = ledger.stat().st_size if ledger.exists() else 0
    succeeded, unknown = outcomes["succeeded"], outcomes["interrupted"]
    report.row("dev_append", effects=written, succeeded=succeeded, interrupted=unknown)
    if not succeeded <= written <= succeeded + unknown:
        yield f"{written} effects of {succeeded} successes and {unknown} unknown outcomes"
    for outcome in set(outcomes) - {"succeeded", "interrupted"}:
        yield f"{outcomes[outcome]} calls of dev_append had {outcome}"


def _invariants(report: Report, project: Project) -> Iterator[str]:
    sessions = list(Session.objects.filter(project=project).values_list("pk", flat=True))
    found = [
        f"{ids.encode('ses', session)}: {sentence}"
        for session in sessions
        for sentence in invariants.check_session(session)
    ]
    found += invariants.check_workers()
    report.row("invariants", sessions=len(sessions), rules=len(invariants.RULES), violations=len(found))
    yield from found
