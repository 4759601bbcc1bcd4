"""The admin: everything can be read, and changed only by the services that the API calls too.

A form that wrote a row directly would go around locks, log and fence, so no model has one. What staff may do is
an action, and each is one call of a service.
"""

from typing import Any, cast

from django.apps import apps
from django.contrib import admin, messages
from django.contrib.admin import ModelAdmin as DjangoModelAdmin
from django.contrib.admin.options import ActionLocation
from django.contrib.auth.admin import UserAdmin as DjangoUserAdmin
from django.contrib.auth.models import Group, User
from django.db.models import Model, QuerySet
from django.http import HttpRequest
from unfold.admin import ModelAdmin  # type: ignore[import-untyped]
from unfold.forms import (  # type: ignore[import-untyped]
    AdminPasswordChangeForm,
    UserChangeForm,
    UserCreationForm,
)

from sessions_app import control, failures, keys, leases
from sessions_app.access import actor_of
from sessions_app.errors import TenureError
from sessions_app.models import (
    AgentConfig,
    AgentProfile,
    ApiKey,
    Artifact,
    Entry,
    Input,
    Lease,
    ModelCall,
    Project,
    Secret,
    Session,
    Turn,
    Worker,
)

# django-q2 carries our loops, but its tables stay empty here and would only confuse.
for _model in apps.get_app_config("django_q").get_models():
    if admin.site.is_registered(_model):
        admin.site.unregister(_model)
admin.site.unregister([User, Group])


class _Actions:
    """Unfold overrides this method with a signature that Django has deprecated; this is Django's own again."""

    def get_action_choices(
        self,
        request: HttpRequest,
        default_choices: Any = None,
        action_location: Any = ActionLocation.CHANGE_LIST,
    ) -> list[tuple[str, str]]:
        """The actions to choose from, an empty choice first."""
        del default_choices
        model_admin = cast("DjangoModelAdmin[Any]", self)
        choices: list[tuple[str, str]] = DjangoModelAdmin.get_action_choices(
            model_admin, request, default_choices=[("", "Select action")], action_location=action_location
        )
        return choices


@admin.register(User)
class UserAdmin(_Actions, DjangoUserAdmin, ModelAdmin):  # type: ignore[misc,type-arg]
    """Staff accounts; the one thing that is edited here."""

    form = UserChangeForm
    add_form = UserCreationForm
    change_password_form = AdminPasswordChangeForm


class ReadOnlyAdmin(_Actions, ModelAdmin):  # type: ignore[misc]
    """A table to look at. `operate` is the permission for actions: that to change the model."""

    list_per_page = 50
    show_full_result_count = False

    def has_add_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Rows are made by services."""
        del request, obj
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Rows are changed by services."""
        del request, obj
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Rows are deleted by services, where they are deleted at all."""
        del request, obj
        return False

    def has_operate_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        """Whether this user may run the actions of this model."""
        del object_id
        name = f"{self.opts.app_label}.change_{self.opts.model_name}"
        return bool(request.user.has_perm(name))


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


@admin.register(AgentConfig)
class AgentConfigAdmin(ReadOnlyAdmin):
    list_display = ["digest", "project", "created_at"]
    list_filter = ["project"]
    list_select_related = ["project"]
    search_fields = ["digest"]


@admin.register(AgentProfile)
class AgentProfileAdmin(ReadOnlyAdmin):
    list_display = ["name", "project", "version", "config", "updated_at", "deleted_at"]
    list_filter = ["project"]
    list_select_related = ["project", "config"]
    search_fields = ["name"]


@admin.register(Session)
class SessionAdmin(ReadOnlyAdmin):
    list_display = [
        "name_or_id", "project", "status", "last_end", "priority", "attempt", "crash_count", "updated_at",
    ]  # fmt: skip
    list_filter = ["status", "last_turn__status", "last_turn__reason", "project"]
    list_select_related = ["project", "last_turn"]
    search_fields = ["id", "name"]
    ordering = ["-created_at"]
    actions = ["cancel", "force_release", "retry"]

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
        for row in queryset.order_by("pk"):
            try:
                control.cancel(session=row.pk, actor=actor_of(request.user))
            except TenureError as error:
                messages.error(request, f"{row}: {error.detail}")
            else:
                messages.success(request, f"{row}: nothing runs any more")

    @admin.action(description="Force release: take it from its worker", permissions=["operate"])
    def force_release(self, request: HttpRequest, queryset: QuerySet[Session]) -> None:
        """End the lease from outside (L9); another worker goes on from the last saved step."""
        for row in queryset.order_by("pk"):
            if leases.force_release(row.pk):
                messages.success(request, f"{row}: released")
            else:
                messages.warning(request, f"{row}: no worker held it")


@admin.register(Lease)
class LeaseAdmin(ReadOnlyAdmin):
    list_display = ["session", "worker", "attempt", "acquired_at"]
    list_select_related = ["session", "worker"]


@admin.register(Worker)
class WorkerAdmin(ReadOnlyAdmin):
    list_display = ["owner", "host", "pid", "version", "renewed_at", "expires_at", "draining", "dead"]
    list_filter = ["dead", "draining", "host"]
    ordering = ["-id"]


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


@admin.register(Artifact)
class ArtifactAdmin(ReadOnlyAdmin):
    list_display = ["name", "project", "media_type", "size", "created_at"]
    list_filter = ["project"]
    list_select_related = ["project"]
    search_fields = ["name", "sha256"]
