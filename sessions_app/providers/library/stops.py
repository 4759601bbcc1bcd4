"""Each wire protocol's stop reasons in our terms. A reason that is not listed is `unknown`, never success."""

from sessions_app.providers.port import Stop

_STOPS: dict[str, dict[str, Stop]] = {
    "openai-chat": {
        "stop": Stop.DONE,
        "eos": Stop.DONE,
        "end_turn": Stop.DONE,
        "tool_calls": Stop.TOOL_CALLS,
        "function_call": Stop.TOOL_CALLS,
        "length": Stop.LENGTH,
        "max_tokens": Stop.LENGTH,
        "content_filter": Stop.FILTERED,
    },
    "openai": {
        "completed": Stop.DONE,
        "max_output_tokens": Stop.LENGTH,
        "content_filter": Stop.FILTERED,
    },
    "anthropic": {
        "end_turn": Stop.DONE,
        "stop_sequence": Stop.DONE,
        "tool_use": Stop.TOOL_CALLS,
        "max_tokens": Stop.LENGTH,
        "model_context_window_exceeded": Stop.LENGTH,
        "refusal": Stop.FILTERED,
        "pause_turn": Stop.PAUSED,
    },
    "google": {
        "STOP": Stop.DONE,
        "MAX_TOKENS": Stop.LENGTH,
        "SAFETY": Stop.FILTERED,
        "RECITATION": Stop.FILTERED,
        "LANGUAGE": Stop.FILTERED,
        "BLOCKLIST": Stop.FILTERED,
        "PROHIBITED_CONTENT": Stop.FILTERED,
        "SPII": Stop.FILTERED,
        "IMAGE_SAFETY": Stop.FILTERED,
    },
    # Protocols without a corrector: the library's own words.
    "other": {
        "stop": Stop.DONE,
        "tool_call": Stop.TOOL_CALLS,
        "length": Stop.LENGTH,
        "content_filter": Stop.FILTERED,
    },
}


def stop_of(protocol: str, reason: str | None) -> Stop:
    """The stop for a raw reason."""
    return _STOPS[protocol].get(reason or "", Stop.UNKNOWN)
