"""Tool calls: one row per call of a saved model reply, from its request to its one result."""

from django.db import models

from sessions_app.ids import new_id
from sessions_app.models import Session, Turn
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


class ToolCall(models.Model):
    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
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
        ]

    def __str__(self) -> str:
        return f"{self.name} {self.id}"
