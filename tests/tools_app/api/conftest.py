"""The API clients of the sessions' tests, for the tools' paths, and calls that wait for a backend."""

from collections.abc import Callable
from typing import Any

import pytest

from sessions_app import ids
from sessions_app.models import Session
from tests import factories
from tests.sessions_app.api.conftest import Api, anybody, api, new_api, other_api
from tools_app.models import ToolCall

__all__ = ["anybody", "api", "new_api", "other_api"]

type NewCall = Callable[..., ToolCall]


@pytest.fixture
def in_turn(api: Api) -> Session:
    """A session in the middle of a turn, that no worker holds."""
    made = factories.session(config=factories.config(project=api.project), status="waiting")
    factories.open_turn(made)
    return made


@pytest.fixture
def new_call(in_turn: Session) -> NewCall:
    def make(state: str = "waiting", **columns: Any) -> ToolCall:
        return factories.tool_call(in_turn, state=state, **{"name": "create_ticket"} | columns)

    return make


def at(call: ToolCall, rest: str = "") -> str:
    """The path of a call, and what is below it."""
    return f"/tool-calls/{ids.encode('tcl', call.pk)}{rest}"
