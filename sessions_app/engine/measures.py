"""What a config says about the size of requests: its frame (instructions, tools) and its model's window."""

from collections.abc import Mapping
from typing import Any, NamedTuple
from uuid import UUID

from django.conf import settings

from sessions_app import tool_port
from sessions_app.engine import tokens
from sessions_app.engine.compaction import Rule
from sessions_app.providers.windows import context_window


class Measure(NamedTuple):
    """`frame` is the estimate of what goes out beside the messages, `window` is None where it is not known."""

    frame: int
    window: int | None


_measures: dict[UUID, Measure] = {}
_MAX_MEASURES = 1000


def measure_of(config: UUID, document: Mapping[str, Any]) -> Measure:
    """Configs never change, so a process measures each one once."""
    measure = _measures.get(config)
    if measure is None:
        tools = [
            {"name": spec.name, "description": spec.description, "input_schema": spec.input_schema}
            for spec in tool_port.runtime().specs(document)
        ]
        frame = tokens.of_frame(document["instructions"], tools, document.get("output_schema"))
        model = document["model"]
        measure = Measure(frame, context_window(model["provider"], model["name"]))
        if len(_measures) >= _MAX_MEASURES:
            _measures.pop(next(iter(_measures)))
        _measures[config] = measure
    return measure


def rule_of(document: Mapping[str, Any], measure: Measure) -> Rule:
    """When and how far to compact, by a config and this deployment's settings."""
    return Rule.of(document, measure.window or settings.TENURE.context_window)
