"""Start-up checks of django-q2's settings, without importing it."""

from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, register


@register()
def queue_settings(**_: Any) -> list[CheckMessage]:
    """C69: refuse settings under which a queue hands a task out again while it still runs."""
    cluster: dict[str, Any] = getattr(settings, "Q_CLUSTER", {})
    timeout, retry = cluster.get("timeout"), cluster.get("retry", 60)
    if timeout is not None and retry > timeout:
        return []
    return [
        Error(
            f"Q_CLUSTER: retry ({retry}) must be longer than timeout ({timeout}).",
            hint="A task that outlives `retry` is delivered a second time while the first is still running.",
            id="tenure.E001",
        )
    ]
