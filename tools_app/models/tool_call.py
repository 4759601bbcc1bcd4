"""Tool calls: one row per call of a saved model reply, from its request to its one result."""

from django.db import models

from sessions_app.ids import new_id
from sessions_app.models import AgentConfig, Project, Session, Turn
from sessions_app.models.fields import CreatedAt


class ToolClass(models.TextChoices):
    """What a crash in the middle does (durability.md, T)."""

    INTERNAL = "internal"
    OUTSIDE = "outside"
    COMMAND = "command"
    CUSTOM = "custom"
    HUMAN = "human"


class ToolCallState(models.TextChoices):
    AWAITING_APPROVAL = "awaiting_approval"  # a person has to allow it first
    READY = "ready"  # may run
    RUNNING = "running"  # an outside tool may have started; its attempt is on the row
    WAITING = "waiting"  # for a backend, a person, a machine or a child
    COMPLETED = "completed"  # has its one result


class Outcome(models.TextChoices):
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    DENIED = "denied"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"


# T1: the only edges. The trigger in the first migration holds the same table.
EDGES = frozenset(
    {
        (ToolCallState.AWAITING_APPROVAL, ToolCallState.READY),
        (ToolCallState.AWAITING_APPROVAL, ToolCallState.COMPLETED),
        (ToolCallState.READY, ToolCallState.RUNNING),
        (ToolCallState.READY, ToolCallState.WAITING),
        (ToolCallState.READY, ToolCallState.COMPLETED),
        (ToolCallState.RUNNING, ToolCallState.COMPLETED),
        (ToolCallState.RUNNING, ToolCallState.READY),  # only rerun_safe
        (ToolCallState.WAITING, ToolCallState.COMPLETED),
    }
)


# The calls that a backend can answer, and may claim.
_FOR_A_BACKEND = models.Q(state=ToolCallState.WAITING, tool_class=ToolClass.CUSTOM)


class ToolCall(models.Model):
    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    # The session's own; here because backends look for calls by project.
    project = models.ForeignKey(
        Project, models.CASCADE, related_name="+", db_index=False, db_constraint=False
    )
    session = models.ForeignKey(Session, models.CASCADE, related_name="tool_call_rows", db_index=False)
    turn = models.ForeignKey(
        Turn, models.CASCADE, related_name="tool_call_rows", db_index=False, db_constraint=False
    )
    # Where the call stands: the assistant message's seq, and its place among that message's calls.
    message_seq = models.BigIntegerField()
    position = models.IntegerField()
    # The provider's own id of the call.
    call_id = models.TextField()
    name = models.CharField(max_length=200)
    tool_class = models.CharField(max_length=8, choices=ToolClass)
    rerun_safe = models.BooleanField(default=False)
    # The config that the model was asked under: a tool that is changed or replaced later is not what it called.
    config = models.ForeignKey(
        AgentConfig, models.PROTECT, null=True, related_name="+", db_index=False, db_constraint=False
    )
    # Seconds that an outside tool may take.
    time_limit = models.FloatField(null=True, blank=True)
    arguments = models.JSONField()
    state = models.CharField(max_length=17, choices=ToolCallState)
    outcome = models.CharField(max_length=11, choices=Outcome, null=True, blank=True)
    content = models.JSONField(null=True, blank=True)
    # The lease attempt that runs or ran it.
    attempt = models.IntegerField(null=True, blank=True)
    deadline = models.DateTimeField(null=True, blank=True)
    created_at = CreatedAt()
    started_at = models.DateTimeField(null=True, blank=True)
    completed_at = models.DateTimeField(null=True, blank=True)

    # Custom calls (T6). Who posted the result, or the first answer that came too late to be it.
    answered_by = models.JSONField(null=True, blank=True)
    # How often its backend told the log of its progress.
    updates = models.IntegerField(default=0, db_default=0)
    # A worker of the backend that is at it: SHA-256 of its token, who it is, and until when it counts.
    claim_token = models.CharField(max_length=64, null=True, blank=True)
    claimed_by = models.JSONField(null=True, blank=True)
    claim_expires_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["session", "message_seq", "position"], name="tool_call_place_unique"
            ),
            models.CheckConstraint(
                condition=models.Q(
                    state=ToolCallState.COMPLETED,
                    outcome__isnull=False,
                    content__isnull=False,
                    completed_at__isnull=False,
                )
                | ~models.Q(state=ToolCallState.COMPLETED)
                & models.Q(outcome=None, content__isnull=True, completed_at=None),
                name="tool_call_result_is_whole",
            ),
            models.CheckConstraint(
                condition=~models.Q(state=ToolCallState.RUNNING)
                | models.Q(tool_class=ToolClass.OUTSIDE, attempt__isnull=False),
                name="tool_call_only_outside_runs",
            ),
            models.CheckConstraint(
                condition=models.Q(claim_token=None, claimed_by__isnull=True, claim_expires_at=None)
                | models.Q(
                    tool_class=ToolClass.CUSTOM,
                    claim_token__isnull=False,
                    claimed_by__isnull=False,
                    claim_expires_at__isnull=False,
                ),
                name="tool_call_claim_is_whole",
            ),
        ]
        indexes = [
            models.Index(
                fields=["session"], name="tool_call_open", condition=~models.Q(state=ToolCallState.COMPLETED)
            ),
            # What the sweeper re-derives due times from (S11); empty while workers keep up.
            models.Index(
                fields=["session"], name="tool_call_ready", condition=models.Q(state=ToolCallState.READY)
            ),
            models.Index(
                fields=["deadline"],
                name="tool_call_deadline",
                condition=models.Q(deadline__isnull=False) & ~models.Q(state=ToolCallState.COMPLETED),
            ),
            models.Index(fields=["project", "-created_at", "-id"], name="tool_call_newest"),
            # What backends list and claim, without what is done: the cost stays that of what is open.
            models.Index(
                fields=["project", "created_at", "id"],
                name="tool_call_project_open",
                condition=~models.Q(state=ToolCallState.COMPLETED),
            ),
            models.Index(
                fields=["project", "name", "created_at", "id"],
                name="tool_call_unclaimed",
                condition=_FOR_A_BACKEND & models.Q(claim_expires_at=None),
            ),
            models.Index(
                fields=["project", "name", "claim_expires_at"],
                name="tool_call_claimed",
                condition=_FOR_A_BACKEND & models.Q(claim_expires_at__isnull=False),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.name} {self.id}"
