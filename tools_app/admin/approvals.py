"""Approvals in the admin: the full arguments to read, and the same decision as over the API.

Nothing is decided by following a link: the row's button leads to a page with the arguments and a form, and bulk
actions are posted like every action of Django's admin.
"""

from typing import Any

from django import forms
from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from unfold.decorators import action  # type: ignore[import-untyped]
from unfold.widgets import (  # type: ignore[import-untyped]
    UnfoldAdminRadioSelectWidget,
    UnfoldAdminTextareaWidget,
)

from sessions_app.access import actor_of
from sessions_app.admin import ReadOnlyAdmin
from sessions_app.errors import TenureError
from tools_app import approvals
from tools_app.admin.shown import as_json, chosen, who
from tools_app.models import Approval, ApprovalState

_FORM = "admin/tools_app/approval/decide.html"


class ReasonForm(forms.Form):
    """Why; the agent reads it."""

    reason = forms.CharField(
        required=False,
        max_length=approvals.MAX_REASON,
        widget=UnfoldAdminTextareaWidget(attrs={"rows": 3}),
        help_text="The agent reads it.",
    )


class DecideForm(ReasonForm):
    remember = forms.ChoiceField(
        required=False,
        initial="no",
        choices=[
            ("no", "Ask again the next time"),
            ("session", "Allow the like of it in this session"),
            ("always", "Allow the like of it in the whole project"),
        ],
        widget=UnfoldAdminRadioSelectWidget(),
        label="If allowed",
    )


@admin.register(Approval)
class ApprovalAdmin(ReadOnlyAdmin):
    list_display = [
        "name",
        "short_arguments",
        "state",
        "session",
        "assignee",
        "created_at",
        "expires_at",
        "by",
    ]
    list_filter = ["state", "project", "name"]
    list_select_related = ["session"]
    search_fields = ["id", "session__id", "assignee"]
    ordering = ["-created_at"]
    fields = [
        "name", "shown_arguments", "rule", "state", "reason", "by", "session", "tool_call", "assignee",
        "created_at", "expires_at", "id",
    ]  # fmt: skip
    readonly_fields = ["shown_arguments", "by"]
    actions = ["allow", "deny"]
    actions_row = ["decide"]
    actions_detail = ["decide"]

    @admin.display(description="arguments")
    def short_arguments(self, row: Approval) -> str:
        """Enough to tell one from another; the decision page has all of them."""
        text = as_json(row.arguments, indent=None)
        return text if len(text) <= 100 else text[:99] + "…"

    @admin.display(description="arguments")
    def shown_arguments(self, row: Approval) -> str:
        """All of them, as they will be used."""
        return as_json(row.arguments)

    @admin.display(description="decided by")
    def by(self, row: Approval) -> str:
        """Who decided, and when."""
        return who(row.decided_by, row.decided_at)

    @admin.action(description="Allow", permissions=["operate"])
    def allow(self, request: HttpRequest, queryset: QuerySet[Approval]) -> None:
        """One after the other; what was decided meanwhile is told and left as it is."""
        for row in queryset.order_by("created_at", "pk"):
            _decide(request, row, "allow")

    @admin.action(description="Deny…", permissions=["operate"])
    def deny(self, request: HttpRequest, queryset: QuerySet[Approval]) -> HttpResponse | None:
        """Asks for the reason first."""
        rows = list(queryset.order_by("created_at", "pk"))
        form = ReasonForm(request.POST if "apply" in request.POST else None)
        if "apply" in request.POST and form.is_valid():
            for row in rows:
                _decide(request, row, "deny", reason=form.cleaned_data["reason"])
            return None
        context = {
            **self.admin_site.each_context(request),
            "title": f"Deny {len(rows)} approvals" if len(rows) != 1 else "Deny one approval",
            "opts": self.opts,
            "rows": [(row, as_json(row.arguments)) for row in rows],
            "form": form,
            "selected": chosen(rows),
            "action": "deny",
        }
        return TemplateResponse(request, "admin/tools_app/approval/deny.html", context)

    @action(  # type: ignore[untyped-decorator]
        description="Decide",
        url_path="decide",
        permissions=["operate"],
        # A link to see, which also the keyboard reaches.
        extra_options={"display_in_dropdown": False},
    )
    def decide(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """The page with the arguments, to allow or deny."""
        row = self.get_object(request, object_id)
        if row is None:
            messages.error(request, "There is no such approval.")
            return HttpResponseRedirect(reverse("admin:tools_app_approval_changelist"))
        form = DecideForm(request.POST or None)
        decision = request.POST.get("decision", "")
        if request.method == "POST" and decision in {"allow", "deny"} and form.is_valid():
            remember = form.cleaned_data["remember"] or "no"
            _decide(
                request,
                row,
                decision,
                reason=form.cleaned_data["reason"],
                remember=remember if decision == "allow" else "no",
            )
            return HttpResponseRedirect(reverse("admin:tools_app_approval_changelist"))
        context = {
            **self.admin_site.each_context(request),
            "title": f"{row.name}: allow or deny",
            "opts": self.opts,
            "original": row,
            "arguments": as_json(row.arguments),
            "covers": None if row.pattern is None else as_json(row.pattern, indent=None),
            "is_open": row.state == ApprovalState.OPEN,
            "by": who(row.decided_by, row.decided_at),
            "form": form,
        }
        return TemplateResponse(request, _FORM, context)


def _decide(request: HttpRequest, row: Approval, decision: Any, **how: Any) -> None:
    try:
        approvals.decide(approval=row.pk, decision=decision, actor=actor_of(request.user), **how)
    except TenureError as error:
        messages.error(request, f"{row.name}: {error.detail}")
    else:
        messages.success(request, f"{row.name}: {'allowed' if decision == 'allow' else 'denied'}")
