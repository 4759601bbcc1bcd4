"""Names in an agent config that this deployment lacks: accepted, and told to the author.

A config may be made before its secret, machine or tool exists, or for another deployment. A call to a tool
that is still missing then fails like any unknown tool (T3).
"""

from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from sessions_app.agent_config.document import SCRIPTED, AgentConfigDocument
from sessions_app.agent_config.shape import Problem
from sessions_app.agent_config.tools import Auth, BuiltInTool, Headers, HttpTool, McpAuth, SecretHeader
from sessions_app.text import json_pointer

_MCP_PREFIX = "mcp__"

type _Place = tuple[str | int, ...]


class KnownSkill(NamedTuple):
    """A skill of the project. One that was deleted is found by version only."""

    newest: int
    is_deleted: bool = False


def warnings(
    document: AgentConfigDocument,
    *,
    known_tools: Collection[str],
    known_secrets: Collection[str],
    known_machines: Collection[str],
    known_skills: Mapping[str, KnownSkill],
    known_providers: Collection[str] | None = None,
) -> list[Problem]:
    """In the order of the document; `known_providers=None` looks at no provider."""
    found: list[Problem] = []

    def look(code: str, what: str, name: str, known: Collection[str], place: _Place) -> None:
        if name not in known:
            message = f"there is no {what} {name} here"
            found.append(Problem(path=json_pointer(place), code=code, message=message))

    provider = document.model.provider
    if known_providers is not None:
        look("unknown_provider", "provider", provider, {*known_providers, SCRIPTED}, ("model", "provider"))
    for name, tool in (document.tools or {}).items():
        if isinstance(tool, BuiltInTool):
            look("unknown_tool", "tool", name, known_tools, ("tools", name))
    for place, rule_tool in _tools_of_rules(document):
        if rule_tool.startswith(_MCP_PREFIX):
            server = rule_tool.removeprefix(_MCP_PREFIX).partition("__")[0]
            if "*" not in server:
                look("unknown_mcp_server", "MCP server", server, document.mcp or {}, place)
        else:
            look("unknown_tool", "tool", rule_tool, {*known_tools, *(document.tools or {})}, place)
    for place, secret in _secrets(document):
        look("unknown_secret", "secret", secret, known_secrets, place)
    for index, machine in enumerate(document.machines or ()):
        look("unknown_machine", "machine", machine.machine, known_machines, ("machines", index, "machine"))
    for index, skill in enumerate(document.skills or ()):
        there = known_skills.get(skill.name)
        if there is None or (there.is_deleted and skill.version is None):
            look("unknown_skill", "skill", skill.name, (), ("skills", index))
        elif skill.version is not None and skill.version > there.newest:
            what = f"version {skill.version} of the skill"
            look("unknown_skill", what, skill.name, (), ("skills", index))
    return found


def _tools_of_rules(document: AgentConfigDocument) -> Iterator[tuple[_Place, str]]:
    """Rules for all tools of a kind (`git_*`) name none in particular."""
    for index, rule in enumerate(document.permissions or ()):
        if "*" not in rule.tool or rule.tool.startswith(_MCP_PREFIX):
            yield ("permissions", index, "tool"), rule.tool


def _secrets(document: AgentConfigDocument) -> Iterator[tuple[_Place, str]]:
    if document.model.credential is not None:
        yield ("model", "credential"), document.model.credential
    for name, tool in (document.tools or {}).items():
        if isinstance(tool, HttpTool):
            yield from _secrets_of_request(tool.headers, tool.auth, ("tools", name))
    for name, server in (document.mcp or {}).items():
        yield from _secrets_of_request(server.headers, server.auth, ("mcp", name))


def _secrets_of_request(
    headers: Headers | None, auth: Auth | McpAuth | None, place: _Place
) -> Iterator[tuple[_Place, str]]:
    for header, value in (headers or {}).items():
        if isinstance(value, SecretHeader):
            yield (*place, "headers", header, "secret"), value.secret
    if auth is not None and auth.bearer is not None:
        yield (*place, "auth", "bearer"), auth.bearer
    if isinstance(auth, McpAuth) and auth.oauth is not None:
        yield (*place, "auth", "oauth"), auth.oauth
