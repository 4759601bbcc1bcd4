"""Machines in the admin: to read."""

from django.contrib import admin

from machines_app.models import Machine, MachineBinding
from sessions_app.admin import ReadOnlyAdmin


@admin.register(Machine)
class MachineAdmin(ReadOnlyAdmin):
    list_display = ["name", "project", "created_at"]
    list_filter = ["project"]
    list_select_related = ["project"]
    search_fields = ["name"]


@admin.register(MachineBinding)
class MachineBindingAdmin(ReadOnlyAdmin):
    list_display = ["machine", "session", "cwd"]
    list_select_related = ["machine", "session"]
    search_fields = ["session__id"]
    # Values of an environment may be secrets.
    exclude = ["env"]
