"""The pages that there are, for tests that look at all of them."""

from tests.browser.scenery import Scenery, address


def paths(scenery: Scenery) -> dict[str, str]:
    """The path of each page of the console, by its name."""
    return {
        "sessions": "/",
        "session": address(scenery.refund),
        "question": address(scenery.replacement),
        "done": address(scenery.digest),
        "inbox": "/inbox",
        "start": "/sessions/new",
        "usage": "/usage",
        "health": "/health",
    }
