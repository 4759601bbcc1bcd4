"""What every page of the admin stands on."""

from typing import Any, cast

from django.contrib.admin import ModelAdmin as DjangoModelAdmin
from django.contrib.admin.options import ActionLocation
from django.db.models import Model
from django.http import HttpRequest
from unfold.admin import ModelAdmin  # type: ignore[import-untyped]


class Actions:
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


class ReadOnlyAdmin(Actions, ModelAdmin):  # type: ignore[misc]
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
