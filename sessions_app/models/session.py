"""The session row: mutex, sequencer and summary of one agent's log; and its turns."""

from django.db import models

from sessions_app.ids import new_id
from sessions_app.models.config import AgentConfig, AgentProfile
from sessions_app.models.fields import CreatedAt
from sessions_app.models.project import Project


class SessionStatus(models.TextChoices):
    IDLE = "idle"  # nothing to do until somebody speaks
    QUEUED = "queued"  # has work, no worker yet
    RUNNING = "running"  # a worker holds its lease
    WAITING = "waiting"  # for what `waiting_on` lists
    BACKING_OFF = "backing_off"  # a failed model call is asked again at `retry_at`
    ARCHIVED = "archived"  # read-only until restored


class EndReason(models.TextChoices):
    """Why a lease ended (L7)."""

    CRASH = "crash"  # its process died or its host was lost
    DRAIN = "drain"  # a planned stop
    RELEASED = "released"  # nothing to do at the moment
    FORCED = "forced"  # an operator took it
    CANCELLED = "cancelled"  # the turn was cancelled or the session archived


# After these the next attempt asks plan_resume what it may build on (S9).
RESUME_AFTER = frozenset({EndReason.CRASH, EndReason.DRAIN, EndReason.FORCED})

# The same is asked, for this reason, where a fork or a rewind put a session on a branch nobody has looked at.
BRANCH = "branch"


class Session(models.Model):
    """One agent. Locking this row is what makes a write to the session exclusive (L3, S1)."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    project = models.ForeignKey(Project, models.CASCADE, related_name="sessions")
    name = models.CharField(max_length=200, blank=True)
    config = models.ForeignKey(AgentConfig, models.PROTECT, related_name="sessions")
    profile = models.ForeignKey(AgentProfile, models.PROTECT, null=True, blank=True, related_name="sessions")
    parent = models.ForeignKey("self", models.PROTECT, null=True, blank=True, related_name="children")
    # The top of the tree of sessions that it stands in; null where it has neither a parent nor a child.
    tree = models.UUIDField(null=True, blank=True)
    forked_from = models.ForeignKey("self", models.PROTECT, null=True, blank=True, related_name="forks")
    forked_from_seq = models.BigIntegerField(null=True, blank=True)
    # Its log holds `branch_moved` entries: the branch is not simply all of it.
    rewound = models.BooleanField(default=False, db_default=False)
    labels = models.JSONField(default=dict, blank=True)
    metadata = models.JSONField(default=dict, blank=True)
    # What the agent means to do, as it last said: [{text, state}]; null until it does.
    todos = models.JSONField(null=True, blank=True)
    priority = models.SmallIntegerField(default=0)
    created_at = CreatedAt()
    updated_at = CreatedAt()
    archived_at = models.DateTimeField(null=True, blank=True)

    # Summary of the log, written with it (S7).
    status = models.CharField(max_length=12, choices=SessionStatus, default=SessionStatus.IDLE)
    waiting_on = models.JSONField(default=list, blank=True)
    # Without indexes: a step that changes them can then update the row in place (HOT).
    turn = models.ForeignKey("Turn", models.PROTECT, null=True, blank=True, related_name="+", db_index=False)
    last_turn = models.ForeignKey(
        "Turn", models.PROTECT, null=True, blank=True, related_name="+", db_index=False
    )
    turn_count = models.IntegerField(default=0)
    output_seq = models.BigIntegerField(null=True, blank=True)
    input_tokens = models.BigIntegerField(default=0)
    output_tokens = models.BigIntegerField(default=0)
    cached_tokens = models.BigIntegerField(default=0)
    reasoning_tokens = models.BigIntegerField(default=0)
    model_calls = models.IntegerField(default=0)
    tool_calls = models.IntegerField(default=0)
    cost = models.DecimalField(max_digits=18, decimal_places=9, null=True, blank=True)

    # The sequencer: the next entry's number, and the entry that it follows (the head of the current branch).
    next_seq = models.BigIntegerField(default=1)
    head_seq = models.BigIntegerField(default=0)

    # Scheduling. `wake_at` is null while leased, and while there is nothing to do (S11).
    wake_at = models.DateTimeField(null=True, blank=True)
    retry_at = models.DateTimeField(null=True, blank=True)
    work_rev = models.BigIntegerField(default=0)
    attempt = models.IntegerField(default=0)
    # Somebody asked for a compaction that has not been made yet (R5).
    compact_requested = models.BooleanField(default=False, db_default=False)
    crash_count = models.SmallIntegerField(default=0)
    # The dead worker behind each crash of the count, null for one that lived (R9). Means nothing at count zero.
    crashed_with = models.JSONField(null=True, blank=True)
    # What its config's limits are overridden with (R8).
    limits = models.JSONField(null=True, blank=True)
    # What people are asked about a limit that the open turn has reached: {"approval": …, "limit": …, "state": "open"
    # or "denied", "since": …}; and how often they let it go on: {"turn": …, "limits": {"turn.tokens": 1}} (R8).
    limit_ask = models.JSONField(null=True, blank=True)
    limit_grants = models.JSONField(null=True, blank=True)
    # The last lease that ended, and why; a late write of that attempt is told (L3, L7).
    ended_attempt = models.IntegerField(null=True, blank=True)
    ended_reason = models.CharField(max_length=10, choices=EndReason, null=True, blank=True)
    # How leases ended since the last `session_resumed` entry, and which calls that settled:
    # {"reason": …, "attempt": …, "settled": ["tcl_…"]} (S9).
    lease_end = models.JSONField(null=True, blank=True)

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=models.Q(status__in=SessionStatus.values), name="session_status_known"
            ),
            models.CheckConstraint(
                condition=models.Q(priority__range=(-100, 100)), name="session_priority_range"
            ),
            models.CheckConstraint(
                condition=~models.Q(status=SessionStatus.RUNNING) | models.Q(wake_at=None),
                name="session_running_has_no_wake",
            ),
            models.CheckConstraint(
                condition=~models.Q(status=SessionStatus.ARCHIVED) | models.Q(wake_at=None, turn=None),
                name="session_archived_is_quiet",
            ),
            models.CheckConstraint(
                condition=models.Q(head_seq__lt=models.F("next_seq")), name="session_head_behind_next"
            ),
        ]
        indexes = [
            # The claim's index: only rows with a wake time are in it, so idle sessions cost nothing (L2).
            models.Index(
                fields=["project", "priority", "wake_at"],
                name="session_due",
                condition=models.Q(wake_at__isnull=False),
            ),
            # Counts what runs in a project that has a limit.
            models.Index(fields=["project"], name="session_running", condition=models.Q(status="running")),
            # The sweeper's: sessions whose status says that they should move, to see whether they can (S11).
            models.Index(
                fields=["status", "wake_at"],
                name="session_moving",
                condition=models.Q(status__in=["queued", "running", "backing_off"]),
            ),
            models.Index(
                fields=["id"],
                name="session_waiting",
                condition=models.Q(status="waiting", turn__isnull=False, wake_at=None),
            ),
            models.Index(fields=["project", "-created_at", "-id"], name="session_newest"),
            # Those with crashes on their count, to be found when a worker proves alive (R9).
            models.Index(fields=["id"], name="session_crashed", condition=models.Q(crash_count__gt=0)),
            models.Index(fields=["parent"], name="session_parent", condition=models.Q(parent__isnull=False)),
        ]

    def __str__(self) -> str:
        return self.name or str(self.id)


class TurnStatus(models.TextChoices):
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


class TurnReason(models.TextChoices):
    """Why a turn ended. `length` is a succeeded turn, `filtered` a failed one."""

    DONE = "done"
    LENGTH = "length"
    FILTERED = "filtered"
    UNKNOWN_STOP = "unknown_stop"
    INVALID_OUTPUT = "invalid_output"
    LIMIT = "limit"
    CRASH_LIMIT = "crash_limit"
    AUTH = "auth"
    QUOTA = "quota"
    MODEL_NOT_FOUND = "model_not_found"
    INVALID_REQUEST = "invalid_request"
    RETRIES_EXHAUSTED = "retries_exhausted"
    RETRY_TOO_LATE = "retry_too_late"
    CONTEXT_TOO_LONG = "context_too_long"
    CANCELLED = "cancelled"
    ARCHIVED = "archived"


class Turn(models.Model):
    """From one delivered input to the answer, with every model and tool call between."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    session = models.ForeignKey(Session, models.CASCADE, related_name="turns")
    number = models.IntegerField()
    status = models.CharField(max_length=10, choices=TurnStatus, default=TurnStatus.RUNNING)
    reason = models.CharField(max_length=20, choices=TurnReason, null=True, blank=True)
    error = models.JSONField(null=True, blank=True)
    started_at = CreatedAt()
    ended_at = models.DateTimeField(null=True, blank=True)
    output_seq = models.BigIntegerField(null=True, blank=True)
    input_tokens = models.BigIntegerField(default=0)
    output_tokens = models.BigIntegerField(default=0)
    cached_tokens = models.BigIntegerField(default=0)
    reasoning_tokens = models.BigIntegerField(default=0)
    model_calls = models.IntegerField(default=0)
    tool_calls = models.IntegerField(default=0)
    cost = models.DecimalField(max_digits=18, decimal_places=9, null=True, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["session", "number"], name="turn_number_unique"),
            models.UniqueConstraint(
                fields=["session"], condition=models.Q(status=TurnStatus.RUNNING), name="turn_one_running"
            ),
            models.CheckConstraint(
                condition=models.Q(status=TurnStatus.RUNNING, ended_at=None, reason=None)
                | ~models.Q(status=TurnStatus.RUNNING)
                & models.Q(ended_at__isnull=False, reason__isnull=False),
                name="turn_end_is_whole",
            ),
        ]
        indexes = [
            # The list of failed sessions starts from the few turns that failed.
            models.Index(fields=["session"], name="turn_failed", condition=models.Q(status="failed")),
        ]

    def __str__(self) -> str:
        return f"{self.session_id}#{self.number}"
