"""Who may come in: staff, projects, their keys and secrets."""

from django.apps import apps
from django.contrib import admin, messages
from django.contrib.auth.admin import UserAdmin as DjangoUserAdmin
from django.contrib.auth.models import Group, User
from django.db.models import QuerySet
from django.http import HttpRequest
from unfold.admin import ModelAdmin  # type: ignore[import-untyped]
from unfold.forms import (  # type: ignore[import-untyped]
    AdminPasswordChangeForm,
    UserChangeForm,
    UserCreationForm,
)

from sessions_app import keys
from sessions_app.admin.base import Actions, ReadOnlyAdmin
from sessions_app.models import ApiKey, IdempotencyRecord, Project, Secret, Ticket

# django-q2 carries our loops, but its tables stay empty here and would only confuse.
for _model in apps.get_app_config("django_q").get_models():
    if admin.site.is_registered(_model):
        admin.site.unregister(_model)
admin.site.unregister([User, Group])


@admin.register(User)
class UserAdmin(Actions, DjangoUserAdmin, ModelAdmin):  # type: ignore[misc,type-arg]
    """Staff accounts; the one thing that is edited here."""

    form = UserChangeForm
    add_form = UserCreationForm
    change_password_form = AdminPasswordChangeForm


@admin.register(Project)
class ProjectAdmin(ReadOnlyAdmin):
    list_display = ["name", "id", "max_running", "created_at"]
    search_fields = ["name"]


@admin.register(ApiKey)
class ApiKeyAdmin(ReadOnlyAdmin):
    list_display = ["name", "project", "role", "prefix", "created_at", "expires_at", "revoked_at"]
    list_filter = ["project", "role"]
    list_select_related = ["project"]
    search_fields = ["name", "prefix"]
    exclude = ["digest"]
    actions = ["revoke"]

    @admin.action(description="Revoke", permissions=["operate"])
    def revoke(self, request: HttpRequest, queryset: QuerySet[ApiKey]) -> None:
        """The keys open nothing from now on."""
        for row in queryset:
            keys.revoke_key(project=row.project_id, key=row.pk)
            messages.success(request, f"{row.name} is revoked")


@admin.register(Secret)
class SecretAdmin(ReadOnlyAdmin):
    """Names only; there is no way to see a value."""

    list_display = ["name", "project", "created_at", "updated_at"]
    list_filter = ["project"]
    list_select_related = ["project"]
    exclude = ["ciphertext"]


@admin.register(Ticket)
class TicketAdmin(ReadOnlyAdmin):
    """For a browser's socket, good for a minute."""

    list_display = ["id", "project", "session", "key", "user", "expires_at"]
    list_select_related = ["project", "session", "key", "user"]
    exclude = ["digest"]
    ordering = ["-id"]


@admin.register(IdempotencyRecord)
class IdempotencyRecordAdmin(ReadOnlyAdmin):
    """Answers that are given again; what they say may be sealed."""

    list_display = ["operation", "key", "holder", "status", "created_at"]
    search_fields = ["key", "operation"]
    exclude = ["body", "fingerprint"]
    ordering = ["-id"]
