"""Approvals: what an agent may do only once a person has allowed it."""

from django.db import models

from sessions_app.ids import new_id
from sessions_app.models import Project, Session, Turn
from sessions_app.models.fields import CreatedAt
from tools_app.models.tool_call import ToolCall


class ApprovalState(models.TextChoices):
    """`open` is the only state that anything leaves."""

    OPEN = "open"
    ALLOWED = "allowed"
    DENIED = "denied"
    CANCELLED = "cancelled"  # the turn ended, or a newer message came instead of an answer
    EXPIRED = "expired"  # nobody answered in time


class Approval(models.Model):
    """One request to a person, with the arguments as they were when it was made."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    # Both stand on the session too; here they serve the inbox of a project.
    project = models.ForeignKey(Project, models.CASCADE, related_name="+", db_index=False)
    session = models.ForeignKey(Session, models.CASCADE, related_name="approvals", db_index=False)
    turn = models.ForeignKey(Turn, models.CASCADE, related_name="+", db_index=False, db_constraint=False)
    # A call is asked about once; without a call it is a limit that is asked about.
    tool_call = models.OneToOneField(ToolCall, models.CASCADE, null=True, blank=True, related_name="approval")
    name = models.CharField(max_length=200)
    arguments = models.JSONField()
    # SHA-256 of the arguments as PostgreSQL writes them: what is allowed is what was shown.
    digest = models.CharField(max_length=64)
    state = models.CharField(max_length=9, choices=ApprovalState, default=ApprovalState.OPEN)
    # The rule that asked, as a JSON pointer into the config; null where the class default did.
    rule = models.TextField(null=True, blank=True)
    # Its argument matchers, where later calls that they ask about can be allowed with this one.
    pattern = models.JSONField(null=True, blank=True)
    # Seconds that the call may wait for its result once it is allowed; custom and human ones.
    call_deadline = models.FloatField(null=True, blank=True)
    reason = models.TextField(null=True, blank=True)
    decided_by = models.JSONField(null=True, blank=True)
    decided_at = models.DateTimeField(null=True, blank=True)
    expires_at = models.DateTimeField(null=True, blank=True)
    assignee = models.CharField(max_length=200, null=True, blank=True)
    created_at = CreatedAt()

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=models.Q(state__in=[ApprovalState.ALLOWED, ApprovalState.DENIED])
                & models.Q(decided_by__isnull=False, decided_at__isnull=False)
                | ~models.Q(state__in=[ApprovalState.ALLOWED, ApprovalState.DENIED])
                & models.Q(decided_by__isnull=True, decided_at=None),
                name="approval_decision_is_whole",
            ),
        ]
        indexes = [
            # The inbox: only what is open is in it.
            models.Index(
                fields=["project", "-created_at", "-id"],
                name="approval_open",
                condition=models.Q(state="open"),
            ),
            models.Index(fields=["project", "-created_at", "-id"], name="approval_newest"),
            models.Index(fields=["session", "-created_at", "-id"], name="approval_of_session"),
        ]

    def __str__(self) -> str:
        return f"{self.name} {self.id}"
