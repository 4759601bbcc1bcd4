"""The running mock of the wire protocols is shared with the providers' tests."""

from tests.sessions_app.providers.conftest import running_mock

__all__ = ["running_mock"]
