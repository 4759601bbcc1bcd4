"""The API clients of the sessions' tests, for the tools' paths."""

from tests.sessions_app.api.conftest import anybody, api, new_api, other_api

__all__ = ["anybody", "api", "new_api", "other_api"]
