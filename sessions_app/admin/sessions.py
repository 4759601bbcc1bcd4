"""Sessions and their log."""

from collections.abc import Callable
from typing import Any

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest

from sessions_app import control, failures, leases
from sessions_app.access import actor_of
from sessions_app.admin.base import ReadOnlyAdmin
from sessions_app.errors import TenureError
from sessions_app.models import Child, Entry, Input, ModelCall, Session, TreeBudget, Turn


@admin.register(Session)
class SessionAdmin(ReadOnlyAdmin):
    list_display = [
        "name_or_id", "project", "status", "last_end", "priority", "attempt", "crash_count", "updated_at",
    ]  # fmt: skip
    list_filter = ["status", "last_turn__status", "last_turn__reason", "project"]
    list_select_related = ["project", "last_turn"]
    search_fields = ["id", "name"]
    ordering = ["-created_at"]
    actions = ["cancel", "force_release", "retry", "archive", "restore"]

    @admin.display(description="session")
    def name_or_id(self, row: Session) -> str:
        """A session need not have a name."""
        return str(row)

    @admin.display(description="last turn")
    def last_end(self, row: Session) -> str:
        """How it ended: the reason, and the error of a failed one."""
        if row.last_turn is None:
            return "-"
        reason = str(row.last_turn.reason)
        return f"{reason}: {row.last_turn.error.get('detail', '')}" if row.last_turn.error else reason

    @admin.action(description="Retry: repeat the last turn", permissions=["operate"])
    def retry(self, request: HttpRequest, queryset: QuerySet[Session]) -> None:
        """As `POST /sessions/{id}/retry`, one session after the other."""
        chosen = {row.pk: row for row in queryset.order_by("pk")}
        for session, refusal in failures.retry_each(chosen, actor=actor_of(request.user)):
            if refusal is None:
                messages.success(request, f"{chosen[session]}: is asked again")
            else:
                messages.error(request, f"{chosen[session]}: {refusal}")

    @admin.action(description="Cancel the current turn", permissions=["operate"])
    def cancel(self, request: HttpRequest, queryset: QuerySet[Session]) -> None:
        """As `POST /sessions/{id}/cancel`, one session after the other."""
        self._each(request, queryset, control.cancel, "nothing runs any more")

    @admin.action(
        description="Archive: cancel, drop what waits, read only from then on", permissions=["operate"]
    )
    def archive(self, request: HttpRequest, queryset: QuerySet[Session]) -> None:
        """As `POST /sessions/{id}/archive`."""
        self._each(request, queryset, control.archive, "archived")

    @admin.action(description="Restore an archived session", permissions=["operate"])
    def restore(self, request: HttpRequest, queryset: QuerySet[Session]) -> None:
        """As `POST /sessions/{id}/restore`."""
        self._each(request, queryset, control.restore, "restored")

    def _each(
        self, request: HttpRequest, queryset: QuerySet[Session], act: Callable[..., Any], done: str
    ) -> None:
        for row in queryset.order_by("pk"):
            try:
                act(session=row.pk, actor=actor_of(request.user))
            except TenureError as error:
                messages.error(request, f"{row}: {error.detail}")
            else:
                messages.success(request, f"{row}: {done}")

    @admin.action(description="Force release: take it from its worker", permissions=["operate"])
    def force_release(self, request: HttpRequest, queryset: QuerySet[Session]) -> None:
        """End the lease from outside (L9); another worker goes on from the last saved step."""
        for row in queryset.order_by("pk"):
            if leases.force_release(row.pk):
                messages.success(request, f"{row}: released")
            else:
                messages.warning(request, f"{row}: no worker held it")


@admin.register(Entry)
class EntryAdmin(ReadOnlyAdmin):
    list_display = ["seq", "kind", "session", "attempt", "created_at"]
    list_filter = ["kind"]
    list_select_related = ["session"]
    search_fields = ["session__id"]
    ordering = ["-id"]


@admin.register(Turn)
class TurnAdmin(ReadOnlyAdmin):
    list_display = ["number", "session", "status", "reason", "started_at", "ended_at", "cost"]
    list_filter = ["status", "reason"]
    list_select_related = ["session"]
    search_fields = ["session__id"]
    ordering = ["-id"]


@admin.register(Input)
class InputAdmin(ReadOnlyAdmin):
    list_display = ["id", "session", "delivery", "state", "created_at"]
    list_filter = ["state", "delivery"]
    list_select_related = ["session"]
    search_fields = ["session__id"]
    ordering = ["-id"]


@admin.register(ModelCall)
class ModelCallAdmin(ReadOnlyAdmin):
    list_display = [
        "id",
        "session",
        "attempt",
        "state",
        "input_tokens",
        "output_tokens",
        "cost",
        "started_at",
    ]
    list_filter = ["state"]
    list_select_related = ["session"]
    search_fields = ["session__id"]
    ordering = ["-id"]


@admin.register(Child)
class ChildAdmin(ReadOnlyAdmin):
    """Sessions that other sessions started."""

    list_display = ["session", "parent", "working", "status", "reason", "created_at"]
    list_filter = ["working", "status"]
    list_select_related = ["session", "parent"]
    search_fields = ["session__id", "parent__id"]
    ordering = ["-created_at"]


@admin.register(TreeBudget)
class TreeBudgetAdmin(ReadOnlyAdmin):
    """What a session and all below it have used together."""

    list_display = ["session", "model_calls", "tool_calls", "tokens", "cost", "unpriced"]
    list_select_related = ["session"]
    search_fields = ["session__id"]
