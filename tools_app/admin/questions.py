"""Questions in the admin: a form made of the question's own options, answered by the service that the API calls."""

from typing import Any

from django import forms
from django.contrib import admin, messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from unfold.decorators import action  # type: ignore[import-untyped]
from unfold.widgets import (  # type: ignore[import-untyped]
    UnfoldAdminCheckboxSelectMultipleWidget,
    UnfoldAdminRadioSelectWidget,
    UnfoldAdminTextareaWidget,
)

from sessions_app.access import actor_of
from sessions_app.admin import ReadOnlyAdmin
from sessions_app.errors import Invalid, TenureError
from tools_app import ask_user, questions
from tools_app.admin.shown import who
from tools_app.models import Question, QuestionState


class AnswerForm(forms.Form):
    """Fields `options_0`, `text_0`, `options_1`, … for the questions of the form that is asked."""

    def __init__(self, question: Question, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.asked = question.questions
        for number, asked in enumerate(self.asked):
            if asked["options"]:
                self.fields[f"options_{number}"] = _options(asked)
            if asked["allow_text"]:
                self.fields[f"text_{number}"] = forms.CharField(
                    required=False,
                    max_length=ask_user.MAX_ANSWER,
                    label="In your own words" if asked["options"] else asked["text"],
                    widget=UnfoldAdminTextareaWidget(attrs={"rows": 3}),
                )

    def answers(self) -> list[dict[str, Any]]:
        """As the service takes them."""
        given = []
        for number in range(len(self.asked)):
            options = self.cleaned_data.get(f"options_{number}") or []
            options = [options] if isinstance(options, str) else options
            text = self.cleaned_data.get(f"text_{number}")
            given.append({"options": [int(option) for option in options]} | ({"text": text} if text else {}))
        return given

    def explain(self, error: Invalid) -> None:
        """Put what the service found wrong where it belongs."""
        for item in error.errors:
            number = item["path"].split("/")[2] if item["path"].count("/") > 1 else "0"
            field = f"options_{number}" if f"options_{number}" in self.fields else f"text_{number}"
            self.add_error(field if field in self.fields else None, item["message"])


def _options(asked: dict[str, Any]) -> forms.Field:
    choices = [
        (
            str(number),
            f"{option['label']}: {option['description']}" if option.get("description") else option["label"],
        )
        for number, option in enumerate(asked["options"])
    ]
    if asked["multiple"]:
        return forms.MultipleChoiceField(
            choices=choices,
            required=False,
            label=asked["text"],
            widget=UnfoldAdminCheckboxSelectMultipleWidget(),
        )
    return forms.ChoiceField(
        choices=choices,
        required=not asked["allow_text"],
        label=asked["text"],
        widget=UnfoldAdminRadioSelectWidget(),
    )


@admin.register(Question)
class QuestionAdmin(ReadOnlyAdmin):
    list_display = ["short_text", "state", "session", "assignee", "created_at", "expires_at", "by"]
    list_filter = ["state", "project"]
    list_select_related = ["session"]
    search_fields = ["id", "session__id", "assignee"]
    ordering = ["-created_at"]
    fields = [
        "asked",
        "answered",
        "state",
        "by",
        "session",
        "tool_call",
        "assignee",
        "created_at",
        "expires_at",
        "id",
    ]
    readonly_fields = ["asked", "answered", "by"]
    actions_row = ["answer"]
    actions_detail = ["answer"]

    @admin.display(description="question")
    def short_text(self, row: Question) -> str:
        """The first question of the form."""
        text = str(row.questions[0]["text"])
        more = f" (and {len(row.questions) - 1} more)" if len(row.questions) > 1 else ""
        return (text if len(text) <= 100 else text[:99] + "…") + more

    @admin.display(description="questions")
    def asked(self, row: Question) -> str:
        """Each with its options."""
        return "\n".join(
            one["text"]
            + "".join(f"\n  {number}. {option['label']}" for number, option in enumerate(one["options"]))
            for one in row.questions
        )

    @admin.display(description="answers")
    def answered(self, row: Question) -> str:
        """In words, as the agent reads them."""
        if row.answers is None:
            return "-"
        return str(ask_user.content_of(row.questions, row.answers)[0]["text"])

    @admin.display(description="answered by")
    def by(self, row: Question) -> str:
        """Who answered, and when."""
        return who(row.answered_by, row.answered_at)

    @action(  # type: ignore[untyped-decorator]
        description="Answer",
        url_path="answer",
        permissions=["operate"],
        # A link to see, which also the keyboard reaches.
        extra_options={"display_in_dropdown": False},
    )
    def answer(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """The form that the agent put to people."""
        row = self.get_object(request, object_id)
        if row is None:
            messages.error(request, "There is no such question.")
            return HttpResponseRedirect(reverse("admin:tools_app_question_changelist"))
        form = AnswerForm(row, request.POST or None)
        if request.method == "POST" and form.is_valid():
            try:
                questions.answer(question=row.pk, answers=form.answers(), actor=actor_of(request.user))
            except Invalid as error:
                form.explain(error)
            except TenureError as error:
                messages.error(request, error.detail)
                return HttpResponseRedirect(reverse("admin:tools_app_question_changelist"))
            else:
                messages.success(request, "Answered: the session goes on.")
                return HttpResponseRedirect(reverse("admin:tools_app_question_changelist"))
        context = {
            **self.admin_site.each_context(request),
            "title": "Answer a question",
            "opts": self.opts,
            "original": row,
            "is_open": row.state == QuestionState.OPEN,
            "by": who(row.answered_by, row.answered_at),
            "answered": self.answered(row),
            "form": form,
        }
        return TemplateResponse(request, "admin/tools_app/question/answer.html", context)
