"""Skills: versions, which of them a turn finds, and the two tools."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import IntegrityError, connection, transaction
from django.test import Client
from django.urls import reverse

from sessions_app import configs, ids
from sessions_app.errors import Invalid, NotFound
from sessions_app.models import AgentConfig, Project, Session
from sessions_app.tool_port import Call, ToolContext, ToolOutcome
from tests import factories
from tests.acceptance import agents
from tests.factories import ACTOR
from tests.sessions_app.engine.in_process import working
from tests.staging import Contender, another_connection, wait_until_blocked
from tools_app import approvals, skills, toolkit
from tools_app.models import Approval, Skill, SkillVersion
from tools_app.runtime import Runtime


def put(project: Project, name: str = "notes", text: str = "Write notes.", **given: Any) -> skills.Stored:
    values = {"description": f"About {name}.", "instructions": text, "actor": ACTOR} | given
    return skills.put_skill(project=project.pk, name=name, **values)


@pytest.fixture
def project(db: None) -> Project:
    return factories.project()


def config(*names: str, project: Project, **document: Any) -> AgentConfig:
    written = {"instructions": "Be brief.", "model": "scripted:x", "skills": list(names)} | document
    return configs.create_config(project=project.pk, document=written).row


def in_turn(*names: str, project: Project, **document: Any) -> Session:
    """A held session in a turn that started just now, with a config that lists these skills."""
    return factories.running(factories.worker(), config=config(*names, project=project, **document))


def found(session: Session) -> list[tuple[str, int]]:
    listed = skills.listed(session.config.document, project=session.project_id, turn=session.turn_id)
    return [(one.name, one.version) for one in listed]


# --- versions --------------------------------------------------------------------------------------------


def test_each_new_text_is_the_next_version(project: Project) -> None:
    first, second, same = put(project), put(project, text="Write more."), put(project, text="Write more.")
    assert [(it.version.version, it.is_new, it.has_changed) for it in (first, second, same)] == [
        (1, True, True),
        (2, False, True),
        (2, False, False),
    ]
    assert skills.get_skill(project=project.pk, name="notes").instructions == "Write more."
    assert skills.get_skill(project=project.pk, name="notes", version=1).instructions == "Write notes."
    assert [
        row.version for row in skills.versions_of(project=project.pk, name="notes").order_by("version")
    ] == [
        1,
        2,
    ]
    assert [row.version for row in skills.skills_of(project.pk)] == [2]


def test_a_number_means_one_text_also_after_a_deletion(project: Project) -> None:
    """What comes back goes on counting."""
    put(project)
    skills.delete_skill(project=project.pk, name="notes")
    assert not skills.skills_of(project.pk).exists()
    for call in (skills.get_skill, skills.delete_skill, skills.versions_of):
        with pytest.raises(NotFound):
            call(project=project.pk, name="notes")
    again = put(project)
    assert (again.version.version, again.is_new) == (2, True)
    assert skills.get_skill(project=project.pk, name="notes", version=1).version == 1


def test_skills_belong_to_their_project(project: Project) -> None:
    put(project)
    other = factories.project()
    assert put(other, text="Other.").version.version == 1
    assert skills.get_skill(project=project.pk, name="notes").instructions == "Write notes."
    with pytest.raises(NotFound):
        skills.get_skill(project=factories.project().pk, name="notes")


def test_everything_that_is_wrong_with_a_skill_is_said(project: Project) -> None:
    with pytest.raises(Invalid) as refused:
        put(project, name="a@b", description=" ", text="x" * 60_001)
    assert [(error["path"], error["code"]) for error in refused.value.errors] == [
        ("/name", "malformed"),
        ("/description", "too_short"),
        ("/instructions", "too_long"),
    ]
    assert not Skill.objects.exists()


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE tools_app_skillversion SET instructions = 'other'",
        "UPDATE tools_app_skill SET version = version - 1",
        """INSERT INTO tools_app_skillversion (skill_id, version, description, instructions, created_by)
        SELECT skill_id, version, description, instructions, created_by FROM tools_app_skillversion""",
    ],
)
def test_the_database_refuses_a_second_text_under_a_number(project: Project, sql: str) -> None:
    put(project)
    with (
        pytest.raises(IntegrityError, match=r"refused|skill_version_unique"),
        transaction.atomic(),
        connection.cursor() as cursor,
    ):
        cursor.execute(sql)


@pytest.mark.django_db(transaction=True)
def test_two_who_write_at_once_make_two_versions() -> None:
    """Staged: the second waits for the first, also where there was no skill yet."""
    project = factories.project()
    put(project)
    with another_connection() as other:
        other.execute(skills._WRITE_LOCK, [skills.LOCK_CLASS, str(project.pk)])
        writers = [Contender(lambda text=text: put(project, text=text)) for text in ("A", "B")]
        wait_until_blocked(2)
    assert sorted(writer.result().version.version for writer in writers) == [2, 3]


def test_staff_read_every_version(project: Project, client: Client) -> None:
    put(project)
    put(project, text="Write more.")
    client.force_login(User.objects.create_superuser("root"))
    listed = client.get(reverse("admin:tools_app_skillversion_changelist"))
    assert listed.status_code == 200
    first = SkillVersion.objects.get(version=1)
    page = client.get(reverse("admin:tools_app_skillversion_change", args=[first.pk])).content.decode()
    assert "Write notes." in page
    assert 'name="_save"' not in page


# --- which ones a turn finds -----------------------------------------------------------------------------


def test_a_turn_finds_the_newest_version_of_its_start(project: Project) -> None:
    """It works by one text, whatever is written meanwhile; the next turn finds the new one."""
    put(project)
    put(project, name="mails")
    session = in_turn("notes", "mails", project=project)
    put(project, text="Later.")
    assert found(session) == [("notes", 1), ("mails", 1)]
    assert found(in_turn("notes", project=project)) == [("notes", 2)]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("is_there", [True, False])
def test_a_turn_that_starts_while_a_version_is_written_waits_for_it(is_there: bool) -> None:
    """Staged: or it would read the old text first, and later the new one, whose time is before its start."""
    project = factories.project()
    if is_there:
        put(project)
    wrote, may_commit = threading.Event(), threading.Event()

    def write() -> int:
        with transaction.atomic():
            version = put(project, text="In between.").version.version
            wrote.set()
            assert may_commit.wait(10)
        return version

    writer = Contender(write)
    assert wrote.wait(10)
    session = in_turn("notes", project=project)
    reader = Contender(lambda: found(session))
    wait_until_blocked()
    may_commit.set()
    assert reader.result() == [("notes", writer.result())]


def test_a_pinned_version_is_found_for_ever(project: Project) -> None:
    """Configs never change, and neither does what they name."""
    put(project)
    put(project, text="Later.")
    skills.delete_skill(project=project.pk, name="notes")
    assert found(in_turn("notes@1", project=project)) == [("notes", 1)]
    assert found(in_turn("notes@2", project=project)) == [("notes", 2)]
    assert found(in_turn("notes@3", project=project)) == []
    session = in_turn("notes@3", project=project)
    put(project)
    assert found(session) == [("notes", 3)]  # named, so nobody has to guess which text is meant


def test_a_deleted_skill_is_gone_for_turns_that_start_later(project: Project) -> None:
    put(project)
    session = in_turn("notes", project=project)
    skills.delete_skill(project=project.pk, name="notes")
    assert found(session) == [("notes", 1)]
    assert found(in_turn("notes", project=project)) == []


def test_no_skill_of_another_project_is_found(project: Project) -> None:
    put(factories.project())
    assert found(in_turn("notes", "notes2@1", project=project)) == []


def test_a_config_is_warned_about_skills_that_are_not_there(project: Project) -> None:
    put(project)
    written = {"instructions": "Be brief.", "model": "scripted:x", "skills": ["notes", "mails"]}
    stored = configs.create_config(project=project.pk, document=written)
    assert [(warning["path"], warning["code"]) for warning in stored.warnings] == [
        ("/skills/1", "unknown_skill")
    ]


# --- what the model is offered ---------------------------------------------------------------------------


def offered(session: Session) -> toolkit.Toolkit:
    async def in_database(function: Callable[..., Any], *args: Any) -> Any:
        return function(*args)

    # Run to its end by hand: a loop of its own would be in the way of the test's connection.
    made = toolkit.toolkit(
        session.config.document, project=session.project_id, turn=session.turn_id, in_database=in_database
    )
    try:
        made.send(None)
    except StopIteration as done:
        result: toolkit.Toolkit = done.value
        return result
    raise AssertionError("it waited for something")


def test_the_model_learns_of_the_skills_from_the_tool(project: Project) -> None:
    """Without a word in `tools`; in the order of the config, with what each is about."""
    put(project)
    put(project, name="mails", description="How we write mails.")
    (spec,) = offered(in_turn("mails", "notes", "gone", project=project)).specs()
    assert spec.name == "skill"
    assert spec.description.endswith("The skills are:\n- mails: How we write mails.\n- notes: About notes.")
    assert list(spec.input_schema["properties"]) == ["name"]


def test_without_a_list_there_is_no_such_tool(project: Project) -> None:
    """Nor where none of the listed ones is there; a call is told why."""
    put(project)
    assert "skill" not in offered(in_turn(project=project, skills=None, tools={"skill": {}})).offers
    session = in_turn("gone", project=project)
    kit = offered(session)
    assert kit.specs() == []
    block = {"type": "tool_call", "id": "c", "name": "skill", "arguments": {"name": "gone"}}
    _, (call,) = kit.prepare(session=session.pk, turn=session.turn_id, blocks=[block])
    assert call.result is not None
    assert "none of the skills that this agent's config lists exists" in call.result.content[0]["text"]


def test_a_tool_of_the_configs_own_keeps_the_name(project: Project) -> None:
    custom = {"class": "custom", "description": "Ours.", "input_schema": {"type": "object"}}
    put(project)
    (spec,) = offered(in_turn("notes", project=project, tools={"skill": custom})).specs()
    assert spec.description == "Ours."


def test_an_estimate_needs_no_database(project: Project) -> None:
    (spec,) = Runtime().specs(config("notes", "mails@2", project=project).document)
    assert "- notes:" in spec.description


def test_rules_hold_for_the_skill_tool_too(project: Project) -> None:
    """T7."""
    put(project)
    session = in_turn("notes", project=project, permissions=[{"tool": "skill", "then": "deny"}])
    block = {"type": "tool_call", "id": "c", "name": "skill", "arguments": {"name": "notes"}}
    _, (call,) = offered(session).prepare(session=session.pk, turn=session.turn_id, blocks=[block])
    assert call.result is not None
    assert call.result.outcome == "denied"


# --- loading ---------------------------------------------------------------------------------------------


def load(session: Session, name: str) -> tuple[str, str]:
    context = ToolContext(session.project_id, session.pk, session.attempt, "tcl_x", session.config.document)
    call = Call(
        id=ids.new_id(),
        session=session.pk,
        turn=session.turn_id,
        call_id="c",
        name="skill",
        tool_class="internal",
        rerun_safe=False,
        arguments={"name": name},
        position=0,
        state="ready",
    )
    outcome: ToolOutcome = Runtime().run_internal(call, context, session)
    return outcome.outcome, outcome.content[0]["text"]


def test_a_skill_is_loaded_as_the_result(project: Project) -> None:
    put(project, text="Write them short.\n")
    session = in_turn("notes", project=project)
    put(project, text="Later.")
    assert load(session, "notes") == ("succeeded", "Skill notes, version 1:\n\nWrite them short.\n")


def test_an_unknown_skill_is_a_failure_that_names_those_that_exist(project: Project) -> None:
    """T3: also one that exists and is not on the config's list."""
    put(project)
    put(project, name="mails")
    put(project, name="secret")
    session = in_turn("notes", "mails", project=project)
    assert load(session, "secret") == (
        "failed",
        "There is no skill named 'secret'. The skills are: notes, mails.",
    )
    assert load(in_turn("gone", project=project), "gone")[1].endswith("There are no skills.")


# --- with a worker ---------------------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
def test_an_agent_loads_a_skill_and_goes_on(settings: Any) -> None:
    call = {"name": "skill", "arguments": {"name": "notes"}}
    session = agents.start({"tool_calls": [call]}, {"text": "Done."}, skills=["notes"])
    put(agents.row(session).project, text="Write them short.")
    with working(settings) as rested:
        assert rested(session).status == "idle"
    (result,) = agents.log_of(session, "tool_result")
    assert result.data["content"][0]["text"].endswith("Write them short.")
    assert agents.said(session) == ["Done."]


WRITTEN = {"name": "notes", "description": "About notes.", "instructions": "Write them short."}


@pytest.mark.django_db(transaction=True)
def test_a_new_skill_is_stored_once_a_person_has_reviewed_it(settings: Any) -> None:
    """T7, H4: the whole text is what is asked about; the version names who wrote it and who allowed it."""
    call = {"name": "create_skill", "arguments": WRITTEN}
    session = agents.start({"tool_calls": [call]}, {"text": "Kept."}, tools={"create_skill": {}})
    with working(settings) as rested:
        assert rested(session).status == "waiting"
        approval = Approval.objects.get()
        assert (approval.name, approval.arguments) == ("create_skill", WRITTEN)
        assert not Skill.objects.exists()
        approvals.decide(approval=approval.pk, decision="allow", actor=ACTOR)
        assert rested(session).status == "idle"
    version = SkillVersion.objects.get()
    assert (version.version, version.instructions, version.reviewed_by) == (1, "Write them short.", ACTOR)
    assert version.created_by == {"kind": "system", "id": ids.encode("ses", session), "name": "an agent"}
    (result,) = agents.log_of(session, "tool_result")
    assert result.data["content"][0]["text"] == "The skill notes is stored as version 1."
    assert result.data["answered"] is True


@pytest.mark.django_db(transaction=True)
def test_a_skill_that_nobody_wants_is_not_stored(settings: Any) -> None:
    """H4."""
    call = {"name": "create_skill", "arguments": WRITTEN}
    session = agents.start({"tool_calls": [call]}, {"text": "Then not."}, tools={"create_skill": {}})
    with working(settings) as rested:
        rested(session)
        approvals.decide(approval=Approval.objects.get().pk, decision="deny", actor=ACTOR)
        assert rested(session).status == "idle"
    assert not Skill.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_a_rule_may_let_an_agent_write_without_review(settings: Any) -> None:
    """T7: and what the newest version says already makes no other."""
    calls = [{"name": "create_skill", "arguments": WRITTEN}] * 2
    session = agents.start(
        {"tool_calls": calls},
        {"text": "Kept."},
        tools={"create_skill": {}},
        permissions=[{"tool": "create_skill", "then": "allow"}],
    )
    with working(settings) as rested:
        assert rested(session).status == "idle"
    version = SkillVersion.objects.get()
    assert (version.version, version.reviewed_by) == (1, None)
    assert [result.data["content"][0]["text"] for result in agents.log_of(session, "tool_result")] == [
        "The skill notes is stored as version 1.",
        "Version 1 of the skill notes says the same already.",
    ]
