"""Tools run: what comes back, what a failure is, and what never leaves the transaction."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import psycopg.errors
import pytest
from django.db import OperationalError, connection, transaction

from sessions_app import artifacts, ids, tool_port
from sessions_app.errors import LeaseLost
from sessions_app.models import Artifact, Entry, Project, Session
from sessions_app.tool_port import Call, ToolContext, ToolOutcome
from tests import factories
from tests.staging import another_connection, eventually
from tools_app.models import ToolClass
from tools_app.registry import ToolDefinition
from tools_app.results import Content, ToolFailed
from tools_app.runtime import Runtime
from tools_app.toolkit import of_config

type MakeTool = Callable[..., ToolDefinition]

NOWHERE = ToolContext(ids.new_id(), ids.new_id(), 1, "tcl_token", {})


def call(name: str = "probe", **arguments: Any) -> Call:
    return Call(
        id=ids.new_id(),
        session=NOWHERE.session,
        turn=ids.new_id(),
        call_id="c",
        name=name,
        tool_class="outside",
        rerun_safe=False,
        arguments=arguments,
        position=0,
        state="running",
    )


def text(outcome: ToolOutcome) -> str:
    return str(outcome.content[0]["text"])


def test_the_engine_finds_the_runtime_registered() -> None:
    """Apps bring their tools through the port."""
    assert isinstance(tool_port.runtime(), Runtime)
    assert {"set_label", "dev_append", "dev_lookup"} <= set(tool_port.runtime().known_names())


def test_the_model_is_offered_what_the_config_enables_and_the_deployment_has(runtime: Runtime) -> None:
    """T3: names that are missing here are not offered; a custom tool is offered as the config describes it."""
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    tools = {
        "set_label": None,
        "mine": {"class": "custom", "description": "Mine.", "input_schema": schema},
        "not_here": {},
    }
    label, mine = runtime.specs({"tools": tools})
    assert label.name == "set_label"
    assert label.input_schema["required"] == ["key", "value"]
    assert (mine.name, mine.description, mine.input_schema) == ("mine", "Mine.", schema)
    assert runtime.specs({}) == []


# --- outside ---------------------------------------------------------------------------------------------


async def test_a_tool_gets_its_arguments_and_its_idempotency_token(runtime: Runtime, tool: MakeTool) -> None:
    """T5."""

    async def run(arguments: dict[str, Any], context: ToolContext) -> dict[str, Any]:
        return {"got": arguments, "token": context.token}

    tool(run)
    outcome = await runtime.run_outside(call(a=1), NOWHERE)
    value = {"got": {"a": 1}, "token": "tcl_token"}
    assert outcome == ToolOutcome("succeeded", [{"type": "data", "value": value}])


async def test_a_plain_function_runs_in_a_thread_of_its_own(runtime: Runtime, tool: MakeTool) -> None:
    """A blocking tool holds up neither the loop nor the database threads."""
    ran_in: list[threading.Thread] = []
    tool(lambda arguments, context: ran_in.append(threading.current_thread()))
    assert await runtime.run_outside(call(), NOWHERE) == ToolOutcome("succeeded", [])
    assert ran_in[0] is not threading.main_thread()
    assert not ran_in[0].name.startswith("database")


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ToolFailed("The ticket is closed."), "The ticket is closed."),
        (ToolFailed(), "probe failed."),
        (ValueError("bad\nTraceback: secret"), "probe failed: ValueError: bad"),
        (KeyError(), "probe failed: KeyError"),
        (TimeoutError("too slow"), "probe failed: TimeoutError: too slow"),
        (ToolFailed("x" * 5000), "x" * 500 + "…"),
        (ToolFailed("a\x00b"), "a\ufffdb"),
    ],
)
async def test_a_tools_own_failure_is_a_short_result(
    runtime: Runtime, tool: MakeTool, error: Exception, message: str
) -> None:
    """T3, S8: one line for the model, never a stack trace, never an error of the engine."""

    async def run(arguments: dict[str, Any], context: ToolContext) -> None:
        raise error

    tool(run)
    outcome = await runtime.run_outside(call(), NOWHERE)
    assert (outcome.outcome, text(outcome)) == ("failed", message)


async def test_a_result_that_is_none_says_that_the_tool_ran(runtime: Runtime, tool: MakeTool) -> None:
    """S8: the effect is there, only the answer is unusable."""
    tool(lambda arguments, context: object())
    outcome = await runtime.run_outside(call(), NOWHERE)
    assert outcome.outcome == "failed"
    assert text(outcome).startswith("probe ran, but its result can't be stored as JSON")


async def test_a_tool_that_is_gone_since_the_call_is_a_failed_result(runtime: Runtime) -> None:
    """T3: a deployment may drop a tool that has open calls."""
    outcome = await runtime.run_outside(call("gone"), NOWHERE)
    assert (outcome.outcome, text(outcome)) == ("failed", "The tool gone is no longer available here.")


async def test_stopping_a_run_stops_its_tool(runtime: Runtime, tool: MakeTool) -> None:
    """T5, A15: the engine's limits and aborts reach the tool; nothing turns them into a result."""
    started, ended = asyncio.Event(), asyncio.Event()

    async def run(arguments: dict[str, Any], context: ToolContext) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    tool(run)
    running = asyncio.create_task(runtime.run_outside(call(), NOWHERE))
    await started.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert ended.is_set()


@pytest.mark.django_db(transaction=True)
def test_oversized_output_is_cut_and_its_bytes_are_an_artifact(
    runtime: Runtime, tool: MakeTool, tenure: Callable[..., None]
) -> None:
    """S8: and a storage that refuses costs the artifact, not the result, because the tool won't run again."""
    tenure(tool_output_limit=1000)
    project = factories.project()
    context = ToolContext(project.id, ids.new_id(), 1, "tcl_token", {})
    tool(lambda arguments, context: "x" * 5000)
    outcome = asyncio.run(runtime.run_outside(call(), context))
    artifact = Artifact.objects.get(project=project)
    assert len(text(outcome)) <= 1000
    assert ids.encode("art", artifact.id) in text(outcome)
    assert artifacts.read(artifact) == b"x" * 5000

    tenure(max_artifact_bytes=2000)
    outcome = asyncio.run(runtime.run_outside(call(), context))
    assert outcome.outcome == "succeeded"
    assert "artifact" not in text(outcome)


def test_a_tools_thread_keeps_no_database_connection(db: None, runtime: Runtime, tool: MakeTool) -> None:
    """L10: a process that runs many tools holds no connection for each."""
    backends: list[int] = []

    def run(arguments: dict[str, Any], context: ToolContext) -> None:
        connection.ensure_connection()
        backends.append(connection.connection.info.backend_pid)

    def alive() -> bool:
        # Not on this test's connection: a transaction sees one snapshot of the activity.
        with another_connection() as other:
            found = other.execute("SELECT FROM pg_stat_activity WHERE pid = %s", backends)
            return found.rowcount > 0

    tool(run)
    asyncio.run(runtime.run_outside(call(), NOWHERE))
    assert len(backends) == 1
    eventually(lambda: not alive())


# --- internal --------------------------------------------------------------------------------------------


@pytest.fixture
def internal(tool: MakeTool) -> Callable[..., ToolDefinition]:
    def build(run: Callable[..., Any]) -> ToolDefinition:
        return tool(run, tool_class=ToolClass.INTERNAL)

    return build


def test_an_internal_tool_works_on_the_locked_session(
    runtime: Runtime, session: Session, context: ToolContext, internal: MakeTool
) -> None:
    """S5: its effect is saved by whoever holds the fence, with its result."""

    def run(arguments: dict[str, Any], context: ToolContext, session: Session) -> str:
        session.metadata = {"seen": arguments["a"]}
        return "noted"

    internal(run)
    outcome = runtime.run_internal(call(a=1), context, session)
    assert outcome == ToolOutcome("succeeded", [{"type": "text", "text": "noted"}])
    assert session.metadata == {"seen": 1}
    assert factories.reread(session).metadata == {}


@pytest.mark.parametrize("error", [ToolFailed("no"), ValueError("no"), "database"])
def test_a_failed_internal_tool_leaves_nothing_behind(
    runtime: Runtime, session: Session, context: ToolContext, internal: MakeTool, error: Exception | str
) -> None:
    """A78: rolled back, failed once, and the transaction around it goes on."""
    session.labels = {"kept": "yes"}

    def run(arguments: dict[str, Any], context: ToolContext, session: Session) -> None:
        session.labels["kept"] = "no"
        session.next_seq += 5
        Project.objects.create(name="half done")
        if isinstance(error, Exception):
            raise error
        Project.objects.create(name="half done")  # refused: the name is taken

    internal(run)
    next_seq = session.next_seq
    outcome = runtime.run_internal(call(), context, session)
    assert outcome.outcome == "failed"
    assert (session.labels, session.next_seq) == ({"kept": "yes"}, next_seq)
    assert not Project.objects.filter(name="half done").exists()


def refused_later() -> OperationalError:
    error = OperationalError("deadlock detected")
    error.__cause__ = psycopg.errors.DeadlockDetected("deadlock detected")
    return error


@pytest.mark.parametrize("error", [LeaseLost(), refused_later()], ids=["lease lost", "deadlock"])
def test_what_the_engine_has_to_know_is_raised(
    runtime: Runtime, session: Session, context: ToolContext, internal: MakeTool, error: Exception
) -> None:
    """L3, C71: neither is the tool's fault, and neither is a result."""

    def run(arguments: dict[str, Any], context: ToolContext, session: Session) -> None:
        raise error

    internal(run)
    with pytest.raises(type(error)):
        runtime.run_internal(call(), context, session)


def test_an_internal_tool_writes_no_files(
    runtime: Runtime, session: Session, context: ToolContext, internal: MakeTool, tenure: Callable[..., None]
) -> None:
    """S8, L11: code inside the fence touches the database only."""
    tenure(tool_output_limit=1000)
    internal(lambda arguments, context, session: "x" * 5000)
    outcome = runtime.run_internal(call(), context, session)
    assert len(text(outcome)) <= 1000
    assert Artifact.objects.count() == 0


def test_an_internal_tool_gives_back_no_media_by_value(
    runtime: Runtime, session: Session, context: ToolContext, internal: MakeTool
) -> None:
    """S8, L11."""
    media = {"type": "media", "data": "AAAA", "media_type": "image/png"}
    internal(lambda arguments, context, session: Content([media]))
    assert "by value" in text(runtime.run_internal(call(), context, session))


def test_an_internal_tool_that_is_gone_is_a_failed_result(
    runtime: Runtime, session: Session, context: ToolContext
) -> None:
    """T3."""
    assert "no longer available" in text(runtime.run_internal(call("gone"), context, session))


# --- set_label -------------------------------------------------------------------------------------------


def label(session: Session, context: ToolContext, key: str, value: str | None) -> ToolOutcome:
    with transaction.atomic():
        outcome = Runtime().run_internal(call("set_label", key=key, value=value), context, session)
        session.save()
    return outcome


def test_set_label_sets_changes_and_removes(session: Session, context: ToolContext) -> None:
    """S5, S7: the label and its entry come together."""
    label(session, context, "team", "blue")
    label(session, context, "team", "red")
    label(session, context, "kept", "x")
    outcome = label(session, context, "team", None)
    assert (outcome.outcome, text(outcome)) == ("succeeded", "The label team is removed.")
    assert factories.reread(session).labels == {"kept": "x"}
    told = Entry.objects.filter(session=session, kind="session_updated").order_by("seq")
    assert [entry.data["changes"]["labels"] for entry in told] == [
        {"team": "blue"},
        {"team": "red"},
        {"team": "red", "kept": "x"},
        {"kept": "x"},
    ]
    assert {(entry.attempt, entry.turn_id) for entry in told} == {(session.attempt, session.turn_id)}


@pytest.mark.parametrize("value", ["blue", None])
def test_a_label_that_is_as_it_should_be_writes_nothing(
    session: Session, context: ToolContext, value: str | None
) -> None:
    """S7: no entry without a change."""
    if value:
        session.labels = {"team": value}
    assert label(session, context, "team", value).outcome == "succeeded"
    assert not Entry.objects.filter(session=session).exists()


def test_a_session_has_a_limited_number_of_labels(session: Session, context: ToolContext) -> None:
    """Changing and removing still works at the limit."""
    session.labels = {f"k{number}": "v" for number in range(64)}
    assert "at most 64" in text(label(session, context, "one more", "v"))
    assert label(session, context, "k1", "other").outcome == "succeeded"
    assert label(session, context, "k2", None).outcome == "succeeded"
    assert label(session, context, "one more", "v").outcome == "succeeded"


@pytest.mark.parametrize(("key", "value"), [("", "v"), ("k" * 101, "v"), ("k", "v" * 501), ("k", 5)])
def test_labels_that_are_too_long_or_no_text_are_refused_before_they_run(
    runtime: Runtime, session: Session, key: str, value: Any
) -> None:
    """T3."""
    block = {"type": "tool_call", "id": "c", "name": "set_label", "arguments": {"key": key, "value": value}}
    _, (made,) = of_config(session.config.document).prepare(
        session=session.id, turn=session.turn_id, blocks=[block]
    )
    assert made.state == "completed"
