"""Paths of sessions, inputs, entries and turns."""

from django.urls import URLPattern, path

from sessions_app.api.branch_views import RetryView, RewindView
from sessions_app.api.export_view import export
from sessions_app.api.feed_views import ProjectEntriesView, TicketsView
from sessions_app.api.input_views import (
    CancelInputView,
    DemoteInputView,
    InputsView,
    MoveInputView,
    PromoteInputView,
)
from sessions_app.api.session_views import (
    ArchiveView,
    CancelView,
    CompactView,
    EntriesView,
    RestoreView,
    SessionConfigView,
    SessionsView,
    SessionView,
    TurnsView,
    TurnView,
)
from sessions_app.api.stream_views import project_stream, session_stream
from sessions_app.api.wait_view import wait

urlpatterns: list[URLPattern] = [
    path("sessions", SessionsView.as_view()),
    path("sessions/<str:session>", SessionView.as_view()),
    path("sessions/<str:session>/archive", ArchiveView.as_view()),
    path("sessions/<str:session>/cancel", CancelView.as_view()),
    path("sessions/<str:session>/compact", CompactView.as_view()),
    path("sessions/<str:session>/config", SessionConfigView.as_view()),
    path("sessions/<str:session>/restore", RestoreView.as_view()),
    path("sessions/<str:session>/entries", EntriesView.as_view()),
    path("sessions/<str:session>/export", export),
    path("sessions/<str:session>/retry", RetryView.as_view()),
    path("sessions/<str:session>/rewind", RewindView.as_view()),
    path("sessions/<str:session>/inputs", InputsView.as_view()),
    path("sessions/<str:session>/stream", session_stream),
    path("sessions/<str:session>/turns", TurnsView.as_view()),
    path("sessions/<str:session>/wait", wait),
    path("entries", ProjectEntriesView.as_view()),
    path("stream", project_stream),
    path("tickets", TicketsView.as_view()),
    path("inputs/<str:input>/cancel", CancelInputView.as_view()),
    path("inputs/<str:input>/demote", DemoteInputView.as_view()),
    path("inputs/<str:input>/move", MoveInputView.as_view()),
    path("inputs/<str:input>/promote", PromoteInputView.as_view()),
    path("turns/<str:turn>", TurnView.as_view()),
]
