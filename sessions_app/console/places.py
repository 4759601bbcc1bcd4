"""The console's own items in its navigation."""

from sessions_app.console import navigation
from sessions_app.console.navigation import Item


def register() -> None:
    """Called once, when the app is ready."""
    for item in (
        Item(name="Sessions", url="console:sessions", icon="list", key="s", order=10),
        Item(name="Usage", url="console:usage", icon="chart", key="u", order=50),
        Item(name="Health", url="console:health", icon="pulse", key="h", order=90),
    ):
        navigation.register(item)
