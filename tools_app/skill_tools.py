"""The tools of skills: one that loads instructions, one that writes new ones for people to review.

`skill` is there where the config lists skills, and its description tells the model which ones; that is the only
place where it learns of them. It need not stand among the config's tools.

`create_skill` changes what later sessions do, so a person reads it first: unless a rule of the config says
anything else, each call waits for an approval. Then the version is stored in one transaction with the result.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

from pydantic import Field

from sessions_app import ids
from sessions_app.entry_kinds import Actor
from sessions_app.models import Session
from sessions_app.providers.port import ToolSpec
from tools_app import skills
from tools_app.models import Approval, ToolClass
from tools_app.offers import Offer
from tools_app.skills import Listed
from tools_app.tool import ToolContext, ToolFailed, tool
from tools_app.typed_functions import tool_of

if TYPE_CHECKING:
    from tools_app.toolkit import Toolkit

NAME = "skill"
_NONE = "none of the skills that this agent's config lists exists here"


@tool(cls="internal", name=NAME)
def load_skill(name: str, session: Session, context: ToolContext) -> str:
    """Load the instructions of a skill. Do so before you begin work that a skill is about, and follow them."""
    turn = _turn(session)
    found = skills.load(context.config, name, project=context.project, turn=turn)
    if found is None:
        names = [one.name for one in skills.listed(context.config, project=context.project, turn=turn)]
        have = f"The skills are: {', '.join(names)}." if names else "There are no skills."
        raise ToolFailed(f"There is no skill named {name!r}. {have}")
    return f"Skill {found.skill.name}, version {found.version}:\n\n{found.instructions}"


@tool(cls="internal", permission="ask")
def create_skill(
    name: Annotated[str, Field(pattern=f"^{skills.NAME}$")],
    description: Annotated[str, Field(min_length=1, max_length=skills.MAX_DESCRIPTION)],
    instructions: Annotated[str, Field(min_length=1, max_length=skills.MAX_INSTRUCTIONS)],
    session: Session,
    context: ToolContext,
) -> str:
    """Keep instructions for later sessions as a skill, or write the next version of one. A person reviews what
    you write before it is stored.

    Args:
        name: A short name, such as release-notes; the same name again makes a new version.
        description: What the skill is about and when to load it, in one or two sentences.
        instructions: All that an agent needs to know to do this work, in Markdown.
    """
    author: Actor = {
        "kind": "system",
        "id": ids.encode("ses", session.pk),
        "name": session.name or "an agent",
    }
    approval = Approval.objects.filter(tool_call_id=ids.decode("tcl", context.token)).first()
    stored = skills.put_skill(
        project=context.project,
        name=name,
        description=description,
        instructions=instructions,
        actor=author,
        reviewed_by=approval.decided_by if approval is not None else None,
    )
    if not stored.has_changed:
        return f"Version {stored.version.version} of the skill {name} says the same already."
    return f"The skill {name} is stored as version {stored.version.version}."


def of_config(own: Mapping[str, Offer], config: Mapping[str, Any]) -> Mapping[str, Offer]:
    """A config's own offers; `skill` is among them where it lists skills, and only there."""
    wanted = config.get("skills") or ()
    if _is_taken(own) or not (wanted or NAME in own):
        return own
    found = {name: offer for name, offer in own.items() if name != NAME}
    if wanted:
        found[NAME] = _offer([Listed(one["name"], one.get("version") or 0, "") for one in wanted])
    return found


def with_skills(toolkit: "Toolkit", found: Sequence[Listed]) -> "Toolkit":
    """The tools of a config that lists skills, with those that there are."""
    if _is_taken(toolkit.offers):
        return toolkit
    if found:
        return dataclasses.replace(toolkit, offers={**toolkit.offers, NAME: _offer(found)})
    return dataclasses.replace(
        toolkit,
        offers={name: offer for name, offer in toolkit.offers.items() if name != NAME},
        unavailable={**toolkit.unavailable, NAME: _NONE},
    )


def _is_taken(offers: Mapping[str, Offer]) -> bool:
    """A tool of the config's own has the name."""
    return NAME in offers and offers[NAME].tool_class != ToolClass.INTERNAL


def _offer(found: Sequence[Listed]) -> Offer:
    definition = tool_of(load_skill)
    lines = [f"- {one.name}: {one.description}" for one in found]
    description = "\n".join([definition.description, "", "The skills are:", *lines])
    return Offer(
        ToolSpec(NAME, description, definition.input_schema), definition.validator, ToolClass.INTERNAL
    )


def _turn(session: Session) -> UUID:
    if session.turn_id is None:
        raise RuntimeError("an internal tool runs in an open turn")
    turn: UUID = session.turn_id
    return turn
