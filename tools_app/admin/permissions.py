"""Permissions in the admin: what is remembered, to revoke; and a page that explains what would become of a call.

The page only reads, so it is asked by address: a tool call links to it with all that it needs.
"""

import json
from typing import Any
from uuid import UUID

from django import forms
from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from unfold.decorators import action  # type: ignore[import-untyped]
from unfold.widgets import (  # type: ignore[import-untyped]
    UnfoldAdminTextareaWidget,
    UnfoldAdminTextInputWidget,
)

from sessions_app import ids
from sessions_app.access import actor_of
from sessions_app.admin import ReadOnlyAdmin
from sessions_app.models import AgentConfig
from sessions_app.text import UnstorableJson, clean_json
from tools_app import remembered
from tools_app.admin.shown import as_json, who
from tools_app.explanation import Explanation, explain
from tools_app.models import RememberedDecision

_MAX_SHOWN = 100


class StateFilter(admin.SimpleListFilter):
    """Those that hold, unless another state is chosen."""

    title = "state"
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """Beside the first, which needs no word in the address."""
        del request, model_admin
        return [("expired", "Expired"), ("revoked", "Revoked"), ("all", "All")]

    def queryset(
        self, request: HttpRequest, queryset: QuerySet[RememberedDecision]
    ) -> QuerySet[RememberedDecision]:
        """By the database's clock."""
        del request
        match self.value():
            case "all":
                return queryset
            case "expired":
                return remembered.in_state(queryset, "expired")
            case "revoked":
                return remembered.in_state(queryset, "revoked")
            case _:
                return remembered.in_state(queryset, "holds")

    def choices(self, changelist: Any) -> Any:
        """The first is called by what it shows."""
        for index, choice in enumerate(super().choices(changelist)):
            yield {**choice, "display": "Holds"} if index == 0 else choice


class ExplainForm(forms.Form):
    """A call as a model would make it."""

    where = forms.CharField(
        label="Session or config",
        widget=UnfoldAdminTextInputWidget(),
        help_text="An id: ses_… or cfg_…",
    )
    tool = forms.CharField(max_length=200, widget=UnfoldAdminTextInputWidget())
    arguments = forms.CharField(
        required=False, initial="{}", widget=UnfoldAdminTextareaWidget(attrs={"rows": 6}), help_text="JSON"
    )

    def clean_where(self) -> tuple[AgentConfig, UUID | None]:
        """The config, and the session where it is one."""
        text = self.cleaned_data["where"].strip()
        try:
            if text.startswith("ses_"):
                session = ids.decode("ses", text)
                config = AgentConfig.objects.filter(sessions=session).first()
            else:
                session = None
                config = AgentConfig.objects.filter(pk=ids.decode("cfg", text)).first()
        except ids.InvalidId as error:
            raise forms.ValidationError(str(error)) from None
        if config is None:
            raise forms.ValidationError("There is none with this id.")
        return config, session

    def clean_arguments(self) -> dict[str, Any]:
        """An object that can be stored."""
        try:
            value = clean_json(json.loads(self.cleaned_data["arguments"] or "{}"), on_nan="null")
        except (ValueError, RecursionError, UnstorableJson) as error:
            raise forms.ValidationError(f"This is not JSON: {error}") from None
        if not isinstance(value, dict):
            raise forms.ValidationError("The arguments are a JSON object.")
        return value


@admin.register(RememberedDecision)
class RememberedDecisionAdmin(ReadOnlyAdmin):
    list_display = ["tool", "covers", "scope", "by", "expires_at", "revoked"]
    list_filter = [StateFilter, "project", "tool"]
    list_select_related = ["session"]
    search_fields = ["id", "tool", "session__id"]
    ordering = ["-created_at", "-id"]
    fields = ["tool", "covered", "scope", "project", "approval", "by", "expires_at", "revoked", "id"]
    readonly_fields = ["covered", "scope", "by", "revoked"]
    actions = ["revoke"]
    actions_list = ["explain"]

    @admin.display(description="covers")
    def covers(self, row: RememberedDecision) -> str:
        """The beginning of it."""
        text = _covered(row, indent=None)
        return text if len(text) <= _MAX_SHOWN else text[: _MAX_SHOWN - 1] + "…"

    @admin.display(description="covers")
    def covered(self, row: RememberedDecision) -> str:
        """All of it."""
        return _covered(row)

    @admin.display(description="scope")
    def scope(self, row: RememberedDecision) -> str:
        """A session, or the project."""
        return "always" if row.session is None else f"session {row.session}"

    @admin.display(description="allowed by")
    def by(self, row: RememberedDecision) -> str:
        """Who allowed it, and when."""
        return who(row.created_by, row.created_at)

    @admin.display(description="revoked by")
    def revoked(self, row: RememberedDecision) -> str:
        """Who took it back, and when."""
        return who(row.revoked_by, row.revoked_at)

    @admin.action(description="Revoke", permissions=["operate"])
    def revoke(self, request: HttpRequest, queryset: QuerySet[RememberedDecision]) -> None:
        """Calls that they covered ask again from now on."""
        chosen = list(queryset.values_list("pk", flat=True))
        count = remembered.revoke(remembered=chosen, actor=actor_of(request.user))
        messages.success(request, f"Revoked: {count}. Calls that this covered ask again.")

    @action(description="Explain a call", url_path="explain", permissions=["view"])  # type: ignore[untyped-decorator]
    def explain(self, request: HttpRequest) -> HttpResponse:
        """Which rule decides about a call, and why."""
        form = ExplainForm(request.GET or None)
        said: Explanation | None = None
        if form.is_valid():
            config, session = form.cleaned_data["where"]
            said = explain(
                config=config,
                session=session,
                tool=form.cleaned_data["tool"],
                arguments=form.cleaned_data["arguments"],
            )
        context = {
            **self.admin_site.each_context(request),
            "title": "What would become of a call",
            "opts": self.opts,
            "form": form,
            "said": said,
            "rule": None if said is None or said.rule is None else as_json(_rule(form, said.rule)),
        }
        return TemplateResponse(request, "admin/tools_app/remembereddecision/explain.html", context)


def _covered(row: RememberedDecision, *, indent: int | None = 2) -> str:
    if row.pattern is not None:
        return f"where {as_json(row.pattern, indent=indent)}"
    return f"exactly {as_json(row.arguments, indent=indent)}"


def _rule(form: ExplainForm, index: int) -> Any:
    config, _ = form.cleaned_data["where"]
    return config.document["permissions"][index]
