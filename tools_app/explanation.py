"""What would become of a call: which rule decides, and why. Only reads.

The answer is that of the moment: of the config as it is, of what MCP servers say of their tools now, and of what is
remembered. It goes the way that a reply of the model goes, so both say the same.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal
from uuid import UUID

from asgiref.sync import async_to_sync, sync_to_async

from sessions_app import ids
from sessions_app.models import AgentConfig
from tools_app import mcp, remembered
from tools_app.models import Outcome, RememberedDecision
from tools_app.permissions import digest
from tools_app.preparation import judge
from tools_app.remembered import Asked
from tools_app.toolkit import Toolkit, of_config

type Source = Literal["rule", "remembered", "default", "call"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """`then` is allow, ask or deny, or fail where the call has a failed result before anybody is asked (T3).

    `source` says what decided: a rule, a remembered decision that answers the rule or default which asks, the
    default of the tool's class, or the call itself, which fails. `rule` counts from 0.
    """

    then: str
    source: Source
    why: str
    rule: int | None = None
    tool_class: str | None = None
    expires_after: float | None = None
    on_expiry: str | None = None
    remembered: RememberedDecision | None = None
    arguments: Mapping[str, Any]
    digest: str


def explain(
    *, config: AgentConfig, tool: str, arguments: Mapping[str, Any], session: UUID | None = None
) -> Explanation:
    """What a call of `tool` would meet under a config, and in a session where one is given."""
    toolkit = _toolkit(config, tool)
    block = {"type": "tool_call", "id": "explained", "name": tool, "arguments": dict(arguments)}
    _, (call,) = toolkit.prepare(session=session or ids.new_id(), turn=ids.new_id(), blocks=[block])
    said = Explanation(
        then="fail", source="call", why="", arguments=call.arguments, digest=digest(call.arguments)
    )
    offer = toolkit.offers.get(call.name)
    if call.result is not None and call.result.outcome == Outcome.FAILED.value:
        known = None if offer is None else offer.tool_class.value
        return replace(said, why=call.result.content[0]["text"], tool_class=known)
    assert offer is not None  # noqa: S101 - for the type checker: what is not offered has failed
    verdict = judge(toolkit, offer, call.arguments)
    said = replace(
        said,
        then=verdict.then,
        source="default" if verdict.rule is None else "rule",
        why=verdict.why,
        rule=verdict.rule,
        tool_class=offer.tool_class.value,
        expires_after=verdict.expires_after,
        on_expiry=verdict.on_expiry,
    )
    if verdict.then != "ask":
        return said
    asked = Asked(call.name, call.arguments, verdict.pattern)
    (row,) = remembered.matching(project=config.project_id, session=session, asked=[asked])
    if row is None:
        return said
    who = row.created_by.get("name") or "a person"
    where = "in this session" if row.session_id else "always"
    why = f"{who} has allowed the like {where}, so nobody is asked; else {verdict.why}"
    return replace(said, then="allow", source="remembered", why=why, remembered=row)


def _toolkit(config: AgentConfig, tool: str) -> Toolkit:
    made = of_config(config.document)
    if not (mcp.is_mcp(tool) and config.document.get("mcp")):
        return made

    async def in_database(function: Callable[..., Any], *args: Any) -> Any:
        return await sync_to_async(function)(*args)

    remote, missing = async_to_sync(mcp.offers)(
        config.document, project=config.project_id, in_database=in_database
    )
    return replace(made, offers={**made.offers, **remote}, unavailable={**made.unavailable, **missing})
