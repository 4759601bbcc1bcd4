"""Tool calls in the admin: to read."""

from urllib.parse import urlencode

from django.contrib import admin, messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from unfold.decorators import action  # type: ignore[import-untyped]

from sessions_app import ids
from sessions_app.admin import ReadOnlyAdmin
from tools_app.admin.shown import as_json
from tools_app.models import ChildWait, ToolCall


@admin.register(ToolCall)
class ToolCallAdmin(ReadOnlyAdmin):
    list_display = [
        "name",
        "tool_class",
        "state",
        "outcome",
        "session",
        "attempt",
        "started_at",
        "completed_at",
    ]
    list_filter = ["state", "outcome", "tool_class", "name"]
    list_select_related = ["session"]
    search_fields = ["id", "session__id"]
    ordering = ["-id"]
    exclude = ["claim_token"]
    actions_detail = ["explain"]

    @action(description="Explain", url_path="explain", permissions=["view"])  # type: ignore[untyped-decorator]
    def explain(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """To the page that says what would become of this call now, and why."""
        row = self.get_object(request, object_id)
        if row is None:
            messages.error(request, "There is no such tool call.")
            return HttpResponseRedirect(reverse("admin:tools_app_toolcall_changelist"))
        asked = {
            "where": ids.encode("ses", row.session_id),
            "tool": row.name,
            "arguments": as_json(row.arguments),
        }
        page = reverse("admin:tools_app_remembereddecision_explain")
        return HttpResponseRedirect(f"{page}?{urlencode(asked)}")


@admin.register(ChildWait)
class ChildWaitAdmin(ReadOnlyAdmin):
    """Calls that wait for subagents."""

    list_display = ["tool_call", "mode", "children"]
    list_select_related = ["tool_call"]
