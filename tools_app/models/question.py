"""Questions that an agent put to a person with `ask_user`."""

from django.db import models

from sessions_app.ids import new_id
from sessions_app.models import Project, Session, Turn
from sessions_app.models.fields import CreatedAt
from tools_app.models.tool_call import ToolCall


class QuestionState(models.TextChoices):
    """`open` is the only state that anything leaves."""

    OPEN = "open"
    ANSWERED = "answered"
    CANCELLED = "cancelled"  # the turn ended, or a newer message came instead of an answer
    EXPIRED = "expired"  # nobody answered in time


class Question(models.Model):
    """One form: `questions` is [{text, options: [{label, description?}], multiple, allow_text}]."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    # Both stand on the session too; here they serve the inbox of a project.
    project = models.ForeignKey(Project, models.CASCADE, related_name="+", db_index=False)
    session = models.ForeignKey(Session, models.CASCADE, related_name="questions", db_index=False)
    turn = models.ForeignKey(Turn, models.CASCADE, related_name="+", db_index=False, db_constraint=False)
    tool_call = models.OneToOneField(ToolCall, models.CASCADE, related_name="question")
    questions = models.JSONField()
    state = models.CharField(max_length=9, choices=QuestionState, default=QuestionState.OPEN)
    # [{options: [0, …], text?}], one for each question.
    answers = models.JSONField(null=True, blank=True)
    answered_by = models.JSONField(null=True, blank=True)
    answered_at = models.DateTimeField(null=True, blank=True)
    expires_at = models.DateTimeField(null=True, blank=True)
    assignee = models.CharField(max_length=200, null=True, blank=True)
    created_at = CreatedAt()

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=models.Q(
                    state=QuestionState.ANSWERED,
                    answers__isnull=False,
                    answered_by__isnull=False,
                    answered_at__isnull=False,
                )
                | ~models.Q(state=QuestionState.ANSWERED)
                & models.Q(answers__isnull=True, answered_by__isnull=True, answered_at=None),
                name="question_answer_is_whole",
            ),
        ]
        indexes = [
            # The inbox: only what is open is in it.
            models.Index(
                fields=["project", "-created_at", "-id"],
                name="question_open",
                condition=models.Q(state="open"),
            ),
            models.Index(fields=["project", "-created_at", "-id"], name="question_newest"),
            models.Index(fields=["session", "-created_at", "-id"], name="question_of_session"),
        ]

    def __str__(self) -> str:
        return f"question {self.id}"
