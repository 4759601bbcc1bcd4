"""The console's own addresses; apps above add theirs in `config.urls`."""

from django.urls import path

from sessions_app.console.entering import ChooseProject, Login, Logout, Waiting
from sessions_app.console.health import Health
from sessions_app.console.session_list import Sessions
from sessions_app.console.session_page import SessionPage
from sessions_app.console.starting import CheckDocument, StartSession
from sessions_app.console.usage import Usage

app_name = "console"
urlpatterns = [
    path("", Sessions.as_view(), name="sessions"),
    path("login", Login.as_view(), name="login"),
    path("logout", Logout.as_view(), name="logout"),
    path("project", ChooseProject.as_view(), name="project"),
    path("waiting", Waiting.as_view(), name="waiting"),
    path("sessions/new", StartSession.as_view(), name="start"),
    path("sessions/new/check", CheckDocument.as_view(), name="check"),
    path("sessions/<str:session>", SessionPage.as_view(), name="session"),
    path("usage", Usage.as_view(), name="usage"),
    path("health", Health.as_view(), name="health"),
]
