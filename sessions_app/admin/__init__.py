"""The admin: everything can be read, and changed only by the services that the API calls too.

A form that wrote a row directly would go around locks, log and fence, so no model has one. What staff may do is
an action, and each is one call of a service.
"""

from sessions_app.admin import accounts, agents, sessions, workers
from sessions_app.admin.base import ReadOnlyAdmin

__all__ = ["ReadOnlyAdmin", "accounts", "agents", "sessions", "workers"]
