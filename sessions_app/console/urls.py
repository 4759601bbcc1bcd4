"""The console's own addresses; apps above add theirs in `config.urls`."""

from django.urls import path

from sessions_app.console.entering import ChooseProject, Login, Logout, Waiting
from sessions_app.console.files import FilePage
from sessions_app.console.health import Health
from sessions_app.console.session_actions import Act, ChangeInput, ForkHere, Rewind, Speak
from sessions_app.console.session_list import Sessions
from sessions_app.console.session_page import Entries, EntryPage, SessionPage
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
    path("sessions/<str:session>/entries", Entries.as_view(), name="entries"),
    path("sessions/<str:session>/entries/<int:seq>", EntryPage.as_view(), name="entry"),
    path("sessions/<str:session>/inputs", Speak.as_view(), name="speak"),
    path("sessions/<str:session>/rewind", Rewind.as_view(), name="rewind"),
    path("sessions/<str:session>/fork", ForkHere.as_view(), name="fork"),
    path("sessions/<str:session>/<slug:action>", Act.as_view(), name="act"),
    path("inputs/<str:input>/<slug:change>", ChangeInput.as_view(), name="change-input"),
    path("files/<str:artifact>", FilePage.as_view(), name="file"),
    path("usage", Usage.as_view(), name="usage"),
    path("health", Health.as_view(), name="health"),
]
