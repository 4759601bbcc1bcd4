"""What this app brings to the console."""

from sessions_app.console import cards as card_sources
from sessions_app.console import navigation
from sessions_app.console.navigation import Item
from tools_app.console import cards, inbox


def register() -> None:
    """Called once, when the app is ready."""
    navigation.register(
        Item(name="Inbox", url="inbox:inbox", icon="inbox", key="i", order=20, waiting=inbox.waiting)
    )
    card_sources.register(cards.of_entries)
