"""Structured logs: each line is an event with a stable name and fields (`lease.claimed session=…`)."""

from typing import Any

import structlog

_SHARED: list[Any] = [
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_log_level,
    structlog.stdlib.add_logger_name,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
]


def configure(*, level: str, as_json: bool) -> dict[str, Any]:
    """Django's LOGGING dictionary; structlog's and the standard library's loggers share its one handler."""
    renderer = structlog.processors.JSONRenderer() if as_json else structlog.dev.ConsoleRenderer(colors=False)
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *_SHARED,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {
            "event": {
                "()": structlog.stdlib.ProcessorFormatter,
                "foreign_pre_chain": _SHARED,
                "processors": [
                    structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                    structlog.processors.format_exc_info,
                    renderer,
                ],
            }
        },
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "event"}},
        "root": {"handlers": ["stderr"], "level": level},
        "loggers": {
            # Without its own handler, by which a line would stand there twice while DEBUG is on.
            "django": {"handlers": [], "level": level},
            # A line per request belongs to the proxy in front; errors still come through.
            "django.request": {"level": "ERROR"},
            "daphne": {"level": "WARNING"},
            "httpx": {"level": "WARNING"},
            "httpx2": {"level": "WARNING"},
            "httpcore": {"level": "WARNING"},
            "httpcore2": {"level": "WARNING"},
            "asyncio": {"level": "WARNING"},
            # At INFO it tells every session id, which is half a credential.
            "mcp": {"level": "WARNING"},
        },
    }


__all__ = ["configure"]
