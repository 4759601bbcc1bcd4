"""Tool calls in the admin: to read."""

from django.contrib import admin

from sessions_app.admin import ReadOnlyAdmin
from tools_app.models import ToolCall


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
