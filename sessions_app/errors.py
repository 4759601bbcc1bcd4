"""Errors with a code, a status and data; one handler renders them. The docstring is the default text."""

from typing import Any


class TenureError(Exception):
    """Something went wrong."""

    code = "error"
    status = 500

    def __init__(self, detail: str | None = None, **data: Any) -> None:
        self.detail = detail or " ".join((type(self).__doc__ or "").split())
        self.data = data
        super().__init__(self.detail)


class Invalid(TenureError):
    """The request is not valid."""

    code = "invalid"
    status = 400

    def __init__(
        self, detail: str | None = None, *, errors: list[dict[str, str]] | None = None, **data: Any
    ) -> None:
        super().__init__(detail, **data)
        self.errors = errors or []


class NotFound(TenureError):
    """No such object."""

    code = "not_found"
    status = 404


class Conflict(TenureError):
    """The object is not in the state that this needs. `current` shows the one it is in."""

    code = "conflict"
    status = 409


class SessionArchived(Conflict):
    """The session is archived: it can be read and restored, nothing else."""

    code = "session_archived"


class LeaseLost(TenureError):
    """This attempt no longer holds the session; nothing was written."""

    code = "lease_lost"
    status = 409


class WorkerDead(TenureError):
    """This worker was declared dead and must start over under a new id."""

    code = "worker_dead"
    status = 409


def is_lease_lost(error: BaseException | None) -> bool:
    """Whether a lost lease is anywhere in the chain, so that a wrapped one still counts (L3)."""
    seen: set[int] = set()
    waiting = [error]
    while waiting:
        current = waiting.pop()
        if current is None or id(current) in seen:
            continue
        seen.add(id(current))
        if isinstance(current, LeaseLost):
            return True
        waiting += [current.__cause__, current.__context__]
        if isinstance(current, BaseExceptionGroup):
            waiting += current.exceptions
    return False
