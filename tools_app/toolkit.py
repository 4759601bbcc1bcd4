"""The tools of one model call (`sessions_app.tool_port.Toolkit`).

What a config offers by itself follows from its document alone, and takes a fraction of a millisecond, because
schemas are compiled once for each text. What servers and the project's own tables offer is asked for when the
call is about to be made, and the reply is read with the same toolkit: a call is judged by what the model was told.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any
from uuid import UUID

from sessions_app.providers.port import ToolSpec
from sessions_app.tool_port import Blocks, Call, InDatabase
from tools_app import mcp, skill_tools, skills
from tools_app.offers import Offer, offers
from tools_app.preparation import prepare


@dataclass(frozen=True, slots=True)
class Toolkit:
    """`unavailable` says of names, or beginnings of names that end in `__`, why they are not there now."""

    config: Mapping[str, Any]
    offers: Mapping[str, Offer]
    unavailable: Mapping[str, str] = field(default_factory=dict)

    def specs(self) -> Sequence[ToolSpec]:
        return [offer.spec for offer in self.offers.values()]

    def prepare(self, *, session: UUID, turn: UUID, blocks: Blocks) -> tuple[Blocks, list[Call]]:
        return prepare(self, session=session, turn=turn, blocks=blocks)


def of_config(config: Mapping[str, Any]) -> Toolkit:
    """What the document offers by itself."""
    own = {offer.spec.name: offer for offer in offers(config)}
    return Toolkit(config, skill_tools.of_config(own, config))


async def toolkit(
    config: Mapping[str, Any], *, project: UUID, turn: UUID, in_database: InDatabase
) -> Toolkit:
    """All that the next model call of a turn is offered; `project` is the session's."""
    made = of_config(config)
    if config.get("skills"):
        found = await in_database(partial(skills.listed, config, project=project, turn=turn))
        made = skill_tools.with_skills(made, found)
    if config.get("mcp"):
        remote, missing = await mcp.offers(config, project=project, in_database=in_database)
        made = replace(made, offers={**made.offers, **remote}, unavailable={**made.unavailable, **missing})
    return made
