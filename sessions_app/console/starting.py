"""Starting a session: from a profile, or from a document that is checked while it is written."""

from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from django.db import transaction
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from pydantic import TypeAdapter, ValidationError

from sessions_app import configs, ids, profiles, session_service
from sessions_app import content as contents
from sessions_app.agent_config.shape import InvalidConfig, problems_of
from sessions_app.agent_config.yaml import UnreadableDocument, load_yaml
from sessions_app.api.fields import Labels
from sessions_app.console import yaml_places
from sessions_app.console.pages import ConsolePage
from sessions_app.errors import Invalid, TenureError
from sessions_app.inputs import NewInput
from sessions_app.text import clean_text

EXAMPLE = """\
# What the agent is told, and which model it runs on.
instructions: |
  Answer in one short paragraph.
model: openai:gpt-5

# Everything below is optional.
# tools:
#   web_fetch: {}
#   ask_user: {}
# limits:
#   turn: {model_calls: 50, cost_usd: "2.00"}
"""
_labels: TypeAdapter[dict[str, str]] = TypeAdapter(Labels)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mistake:
    """Something about the document, at its line and column (0 where they are not known)."""

    line: int
    column: int
    path: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Review:
    """What is to be said about a document; `error` about none of its lines."""

    mistakes: list[Mistake] = field(default_factory=list)
    warnings: list[Mistake] = field(default_factory=list)
    document: Any = None

    @property
    def is_good(self) -> bool:
        return not self.mistakes


@dataclass(slots=True, kw_only=True)
class Form:
    """What was filled in, and what is wrong with it, by field."""

    source: str = "profile"
    profile: str = ""
    document: str = EXAMPLE
    save_as: str = ""
    name: str = ""
    labels: str = ""
    text: str = ""
    errors: dict[str, str] = field(default_factory=dict)
    review: Review = field(default_factory=Review)

    @classmethod
    def of(cls, request: HttpRequest) -> "Form":
        """As it was sent, with the line ends of a file instead of those of a form."""

        def sent(name: str) -> str:
            return clean_text(request.POST.get(name, "")).replace("\r\n", "\n")

        source = "document" if sent("source") == "document" else "profile"
        return cls(
            source=source,
            profile=sent("profile"),
            document=sent("document"),
            save_as=sent("save_as").strip(),
            name=sent("name").strip(),
            labels=sent("labels"),
            text=sent("text"),
        )


class StartSession(ConsolePage):
    place = "console:start"

    def get(self, request: HttpRequest) -> HttpResponse:
        """The form; `?profile=` chooses one."""
        form = Form(profile=clean_text(request.GET.get("profile", "")))
        return self._form(form)

    def post(self, request: HttpRequest) -> HttpResponse:
        """Starts the session and shows it, or the form with what is wrong at its place."""
        form = Form.of(request)
        labels = _read_labels(form)
        content = _read_text(form)
        _check_name(form)
        if form.source == "document":
            form.review = review(form.document, project=self.project)
        elif not form.profile:
            form.errors["profile"] = "Choose one."
        if form.errors or not form.review.is_good:
            return self._form(form, status=400)
        try:
            with transaction.atomic(durable=True):
                row = self._start(form, labels=labels, content=content)
        except TenureError as error:
            form.errors["form"] = error.detail
            return self._form(form, status=error.status)
        return HttpResponseRedirect(reverse("console:session", args=[ids.encode("ses", row)]))

    def _start(self, form: Form, *, labels: dict[str, str], content: Any) -> UUID:
        config = profile = None
        if form.source == "document":
            config = configs.create_config(project=self.project, document=form.review.document).row.pk
            if form.save_as:
                profile = profiles.create_profile(
                    project=self.project, name=form.save_as, config=config, actor=self.access.actor
                ).pk
        else:
            profile = session_service.profile_named(project=self.project, text=form.profile)
        row = session_service.start_session(
            project=self.project,
            actor=self.access.actor,
            config=config if profile is None else None,
            profile=profile,
            name=form.name,
            labels=labels,
            input=NewInput(content=content, actor=self.access.actor) if content is not None else None,
        )
        return row.pk

    def _form(self, form: Form, *, status: int = 200) -> HttpResponse:
        known = list(profiles.profiles_of(self.project).order_by("name"))
        if not known and not form.errors:
            form.source = "document"
        context = {"form": form, "profiles": known, "review": form.review}
        return self.page("console/start/page.html", context, status=status)


class CheckDocument(ConsolePage):
    place = "console:start"

    def post(self, request: HttpRequest) -> HttpResponse:
        """What is to be said about the document, while it is written."""
        form = Form.of(request)
        context = {"review": review(form.document, project=self.project), "checked": True}
        return self.fragment("console/start/review.html", context)


def review(text: str, *, project: UUID) -> Review:
    """Everything that is wrong with a document, and what this deployment lacks of it, in the order of its lines."""
    try:
        document = load_yaml(text)
    except UnreadableDocument as error:
        wrong = Mistake(line=error.line or 0, column=error.column or 0, path="", message=error.problem)
        return Review(mistakes=[wrong])
    try:
        warnings = configs.check_document(project=project, document=document)
    except InvalidConfig as error:
        return Review(mistakes=_placed(text, error.errors))
    return Review(warnings=_placed(text, [dict(warning) for warning in warnings]), document=document)


def _placed(text: str, problems: list[dict[str, Any]]) -> list[Mistake]:
    places = yaml_places.places(text, [problem["path"] for problem in problems])
    found = [
        Mistake(line=place.line, column=place.column, path=problem["path"], message=problem["message"])
        for place, problem in zip(places, problems, strict=True)
    ]
    return sorted(found, key=lambda mistake: (mistake.line, mistake.column))


def _check_name(form: Form) -> None:
    if len(form.name) > 200:
        form.errors["name"] = "At most 200 characters."
    if len(form.save_as) > 100:
        form.errors["save_as"] = "At most 100 characters."


def _read_text(form: Form) -> Any:
    if not form.text.strip():
        return None
    try:
        return contents.parse(form.text)
    except Invalid as error:
        form.errors["text"] = error.detail
        return None


def _read_labels(form: Form) -> dict[str, str]:
    """One `key: value` a line, by the rules of the API."""
    labels: dict[str, str] = {}
    for number, line in enumerate(form.labels.splitlines(), start=1):
        key, colon, value = (part.strip() for part in line.partition(":"))
        if not line.strip():
            continue
        if not colon or not key:
            form.errors["labels"] = f"Line {number} is not key: value."
            return {}
        if key in labels:
            form.errors["labels"] = f"Line {number}: {key} stands twice."
            return {}
        labels[key] = value
    try:
        return _labels.validate_python(labels)
    except ValidationError as error:
        first = problems_of(error)[0]
        form.errors["labels"] = f"{first['path'].removeprefix('/') or 'labels'}: {first['message']}"
        return {}
