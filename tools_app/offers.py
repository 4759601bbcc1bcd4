"""Which tools an agent config offers to its model, and how each of them runs here."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from django.conf import settings

from sessions_app.agent_config.values import seconds
from sessions_app.providers.port import ToolSpec
from tools_app import arguments, http_tools, registry
from tools_app.definitions import Permission, ToolDefinition
from tools_app.models import ToolClass
from tools_app.permissions.defaults import default_for


@dataclass(frozen=True, slots=True)
class Offer:
    """A tool as one config has it. Times are in seconds."""

    spec: ToolSpec
    validator: arguments.Validator
    tool_class: ToolClass
    rerun_safe: bool = False
    time_limit: float | None = None  # outside tools
    deadline: float | None = None  # custom and human tools that fail when no result comes
    annotations: Mapping[str, bool] = field(default_factory=dict)  # what its MCP server says of it
    permission: Permission = "allow"  # where no rule of the config matches a call


def offer(config: Mapping[str, Any], name: str) -> Offer | None:
    """The tool `name`; None where the config does not enable it or this deployment does not have it."""
    enabled = config.get("tools") or {}
    if name not in enabled:
        return None
    own: Mapping[str, Any] = enabled[name] or {}
    if own.get("class") == ToolClass.CUSTOM:
        return _custom(name, own)
    if own.get("class") == ToolClass.OUTSIDE:
        return _http(name, own)
    tool = registry.get(name) if own.get("class") is None else None
    if tool is None:
        return None
    own_limit = seconds(own["time_limit"]) if own.get("time_limit") else None
    outside, human = tool.tool_class == ToolClass.OUTSIDE, tool.tool_class == ToolClass.HUMAN
    return Offer(
        ToolSpec(name, tool.description, tool.input_schema),
        tool.validator,
        ToolClass(tool.tool_class),
        rerun_safe=tool.rerun_safe,
        time_limit=own_limit or registry.time_limit_of(name) if outside else None,
        deadline=own_limit if human else None,
        permission=permission_of(tool),
    )


def permission_of(tool: ToolDefinition) -> Permission:
    """What holds of a tool of this deployment where no rule decides."""
    return default_for(
        tool=tool.name,
        tool_class=tool.tool_class,
        rerun_safe=tool.rerun_safe,
        declared=tool.permission,
    )


def offers(config: Mapping[str, Any]) -> Iterator[Offer]:
    """All tools of a config that can be called, in its order."""
    for name in config.get("tools") or {}:
        found = offer(config, name)
        if found is not None:
            yield found


def _custom(name: str, own: Mapping[str, Any]) -> Offer:
    schema = own["input_schema"]
    # Where a passed deadline changes nothing (keep_waiting), nobody has to be woken by it.
    fails = own.get("on_deadline", "fail") == "fail"
    deadline = seconds(own["deadline"]) if own.get("deadline") and fails else None
    return Offer(
        ToolSpec(name, own["description"], schema),
        arguments.validator_for_schema(schema),
        ToolClass.CUSTOM,
        deadline=deadline,
    )


def _http(name: str, own: Mapping[str, Any]) -> Offer:
    schema = http_tools.schema_of(own)
    limit: float = settings.TENURE.tool_time_limit
    return Offer(
        ToolSpec(name, http_tools.description_of(own), schema),
        arguments.validator_for_schema(schema),
        ToolClass.OUTSIDE,
        rerun_safe=own.get("rerun_safe", False),
        time_limit=seconds(own["time_limit"]) if own.get("time_limit") else limit,
        permission=default_for(tool=name, tool_class=ToolClass.OUTSIDE.value, method=own["method"]),
    )
