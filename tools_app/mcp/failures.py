"""How asking an MCP server can go wrong. The messages are for the model: half sentences about the server."""


class McpFailure(Exception):
    """The server did not do what it was asked."""


class NotDone(McpFailure):
    """What was asked for did not happen, or the server itself says how it failed."""


class OutcomeUnknown(McpFailure):
    """The call was sent, and no answer came: it may have happened. It is never sent again."""


class RefusesCredentials(NotDone):
    """The server wants other credentials than those that were sent, and nothing was done."""


class NoAnswer(NotDone):
    """Nothing came within the time; `asked` is what the server was asked last."""

    def __init__(self, message: str, *, asked: str) -> None:
        super().__init__(message)
        self.asked = asked
