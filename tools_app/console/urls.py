"""The inbox's addresses, and those at which cards are answered."""

from django.urls import path

from tools_app.console.answering import Assign, Decide, DecideMany, GiveAnswer
from tools_app.console.inbox import Inbox

app_name = "inbox"
urlpatterns = [
    path("inbox", Inbox.as_view(), name="inbox"),
    path("inbox/decisions", DecideMany.as_view(), name="decide-many"),
    path("inbox/<str:prompt>/assignee", Assign.as_view(), name="assign"),
    path("approvals/<str:approval>/decision", Decide.as_view(), name="decide"),
    path("questions/<str:question>/answer", GiveAnswer.as_view(), name="answer"),
]
