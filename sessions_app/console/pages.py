"""What every page of the console starts from: who looks, in which project, and what frames the page.

Staff log in with Django's login; the project that they chose stands in their browser session. A form names the
project that its page was made for (`project`), so that a switch in another tab can't send it astray.
"""

import json
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar
from uuid import UUID

import structlog
from django.contrib import messages
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied
from django.db import Error
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect
from django.shortcuts import render
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme
from django.views import View

from sessions_app import access, ids
from sessions_app.access import Access
from sessions_app.console import navigation
from sessions_app.database import is_transient
from sessions_app.errors import NotFound, TenureError
from sessions_app.models import Project

logger = structlog.get_logger(__name__)

PROJECT = "console_project"
"""The key of the chosen project in a browser session."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A navigation item as a page shows it; `waiting` is None where nothing is counted."""

    item: navigation.Item
    address: str
    is_current: bool
    waiting: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Shell:
    """What frames every page."""

    project: Project
    projects: list[Project]
    links: list[Link]

    @property
    def waiting(self) -> int:
        """How many things wait for a person."""
        return sum(link.waiting or 0 for link in self.links)


class ConsolePage(View):
    """One page, or one action of a page, for staff, in one project.

    `place` is the URL name of the navigation item that it belongs to.
    """

    place: ClassVar[str] = ""

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        try:
            if not request.user.is_authenticated:
                return self._login(request)
            if not request.user.is_staff:
                raise PermissionDenied("The console is for staff.")
            answer = super().dispatch(request, *args, **kwargs)
        except Error as error:
            if not is_transient(error):
                raise
            logger.warning("console.database_away", error=str(error).partition("\n")[0])
            return away()
        except NotFound as error:
            raise Http404(error.detail) from error
        except TenureError as error:
            return self.refused(error)
        # Pages hold what only this person may see; also the browser forgets them after the logout.
        answer.headers.setdefault("Cache-Control", "no-store")
        answer.headers.setdefault("Vary", "Cookie, HX-Request")
        return answer

    @property
    def is_fragment(self) -> bool:
        """Whether htmx asks for a part of the page only."""
        headers = self.request.headers
        return "HX-Request" in headers and "HX-History-Restore-Request" not in headers

    @cached_property
    def projects(self) -> list[Project]:
        return list(Project.objects.order_by("name"))

    @cached_property
    def access(self) -> Access:
        """The caller in the project that the form names, else in the chosen one, else in the first."""
        named = self.request.POST.get("project") or self.request.session.get(PROJECT)
        project = _project(named, self.projects)
        if project is None and self.request.POST.get("project"):
            raise NotFound("no such project")
        if project is None:
            project = next((row for row in self.projects if row.name == "default"), None)
        if project is None and not self.projects:
            raise NotFound("there is no project yet")
        return access.within(self.request.user, project=project or self.projects[0])

    @property
    def project(self) -> UUID:
        return self.access.project.pk

    def move_to(self, project: Project) -> None:
        """Makes it the project of this page, and of the pages after it."""
        self.access = access.within(self.request.user, project=project)
        chosen = ids.encode("prj", project.pk)
        if self.request.session.get(PROJECT) != chosen:
            self.request.session[PROJECT] = chosen

    def shell(self) -> Shell:
        counts = navigation.waiting(self.project)
        links = [
            Link(
                item=item,
                address=reverse(item.url),
                is_current=item.url == self.place,
                waiting=counts.get(item.url),
            )
            for item in navigation.items()
        ]
        return Shell(project=self.access.project, projects=self.projects, links=links)

    def page(
        self, template: str, context: dict[str, Any] | None = None, *, status: int = 200
    ) -> HttpResponse:
        """The template inside the frame."""
        return render(self.request, template, {**(context or {}), "shell": self.shell()}, status=status)

    def fragment(
        self, template: str, context: dict[str, Any] | None = None, *, status: int = 200
    ) -> HttpResponse:
        """A part of a page, for htmx; `page.html#part` names a part that a template defines."""
        return render(
            self.request, template, {**(context or {}), "project": self.access.project}, status=status
        )

    def refused(self, error: TenureError) -> HttpResponse:
        """Tells what a service refused: as a toast where htmx asked, else on the page that people came from."""
        if self.is_fragment:
            answer = HttpResponse(status=error.status, headers={"HX-Reswap": "none"})
            return toast(answer, error.detail, tone="bad")
        messages.error(self.request, error.detail)
        return HttpResponseRedirect(self._came_from())

    def _came_from(self) -> str:
        address = self.request.headers.get("Referer", "")
        allowed = url_has_allowed_host_and_scheme(address, {self.request.get_host()})
        if allowed and self.request.method == "POST":
            return address
        return reverse("console:sessions")

    def _login(self, request: HttpRequest) -> HttpResponse:
        if "HX-Request" in request.headers:
            # The page behind it comes back after the login, not the fragment.
            target = request.headers.get("HX-Current-URL", reverse("console:sessions"))
            if not url_has_allowed_host_and_scheme(target, {request.get_host()}):
                target = reverse("console:sessions")
            away = redirect_to_login(target, reverse("console:login"))
            return HttpResponse(status=401, headers={"HX-Redirect": away.url})
        return redirect_to_login(request.get_full_path(), reverse("console:login"))


def away() -> HttpResponse:
    """Instead of any page, while the database can't be asked; rendered without asking it."""
    return HttpResponse(render_to_string("503.html"), status=503, headers={"Retry-After": "5"})


def toast(answer: HttpResponse, text: str, *, tone: str = "ok") -> HttpResponse:
    """Has the page show a short message when htmx receives the answer; tone ok, note, warn or bad."""
    answer.headers["HX-Trigger"] = json.dumps({"console:toast": {"text": text, "tone": tone}})
    return answer


def _project(named: Any, projects: list[Project]) -> Project | None:
    try:
        wanted = ids.decode("prj", str(named))
    except ids.InvalidId:
        return None
    return next((row for row in projects if row.pk == wanted), None)
