"""What stands in the console's navigation. Apps register their items in `AppConfig.ready()`.

An item exists together with its page: what is not built yet has no item, and the list closes up.
"""

from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One place to go. `order` sorts within all items; `key` goes there when pressed after g."""

    name: str
    url: str  # the name of a URL without arguments
    icon: str  # a symbol of static/console/icons.svg
    key: str
    order: int
    # How many things wait for a person there, in a project: shown beside the item, in the title of the browser's
    # tab, and told by a notification when it grows.
    waiting: Callable[[UUID], int] | None = None


_items: dict[str, Item] = {}


def register(item: Item) -> None:
    """Adds the item; one with the same URL takes its place."""
    _items[item.url] = item


def items() -> list[Item]:
    """All items, in their order."""
    return sorted(_items.values(), key=lambda item: (item.order, item.name))


def waiting(project: UUID) -> dict[str, int]:
    """How many things wait for a person, by URL name; only items that count."""
    return {item.url: item.waiting(project) for item in items() if item.waiting is not None}
