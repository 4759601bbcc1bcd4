"""Workers, and which sessions they hold."""

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest

from sessions_app import leases
from sessions_app.admin.base import ReadOnlyAdmin
from sessions_app.models import EndReason, Lease, Worker


@admin.register(Lease)
class LeaseAdmin(ReadOnlyAdmin):
    list_display = ["session", "worker", "attempt", "acquired_at"]
    list_select_related = ["session", "worker"]
    actions = ["force_release"]

    @admin.action(description="Force release: take the session from its worker", permissions=["operate"])
    def force_release(self, request: HttpRequest, queryset: QuerySet[Lease]) -> None:
        """As the action of the same name on sessions (L9)."""
        for row in queryset.select_related("session").order_by("pk"):
            if leases.force_release(row.pk):
                messages.success(request, f"{row.session}: released")
            else:
                messages.warning(request, f"{row.session}: no worker held it any more")


@admin.register(Worker)
class WorkerAdmin(ReadOnlyAdmin):
    list_display = ["owner", "host", "pid", "version", "renewed_at", "expires_at", "draining", "dead"]
    list_filter = ["dead", "draining", "host"]
    ordering = ["-id"]
    actions = ["declare_dead"]

    @admin.action(description="Declare dead: others go on with its sessions", permissions=["operate"])
    def declare_dead(self, request: HttpRequest, queryset: QuerySet[Worker]) -> None:
        """For a host that is known to be lost, without waiting for its time to live.

        One that lives after all starts over under another number, and nothing that it still writes counts (L5).
        """
        for row in queryset.order_by("pk"):
            leases.mark_dead(worker=row.pk)
            ended = leases.end_leases_of(worker=row.pk, reason=EndReason.FORCED)
            messages.success(request, f"{row.owner} is dead; it held {ended} sessions")
