"""Coming in, going out, choosing a project, and what waits for a person right now."""

from django.contrib.auth.views import LoginView, LogoutView
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.urls import reverse

from sessions_app.console import navigation
from sessions_app.console.pages import ConsolePage


class Login(LoginView):
    """Django's login in the console's clothes."""

    template_name = "console/login.html"
    redirect_authenticated_user = False
    next_page = "console:sessions"


class Logout(LogoutView):
    next_page = "console:login"


class ChooseProject(ConsolePage):
    def post(self, request: HttpRequest) -> HttpResponse:
        """Remembers the project and shows its sessions: the page left behind may not exist in it."""
        self.move_to(self.access.project)
        return HttpResponseRedirect(reverse("console:sessions"))


class Waiting(ConsolePage):
    def get(self, request: HttpRequest) -> HttpResponse:
        """`{"total", "items": {address: count}}`, for the badges of the navigation and of the tab (notify.js)."""
        counts = navigation.waiting(self.project)
        items = {reverse(url): count for url, count in counts.items()}
        return JsonResponse({"total": sum(counts.values()), "items": items})
