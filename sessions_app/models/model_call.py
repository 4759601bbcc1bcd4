"""One row per attempt at a model call, committed before it is sent (R1)."""

from django.db import models

from sessions_app.ids import new_id
from sessions_app.models.config import AgentConfig
from sessions_app.models.fields import CreatedAt
from sessions_app.models.session import Session, Turn


class ModelCallState(models.TextChoices):
    STARTED = "started"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    INTERRUPTED = "interrupted"  # its lease ended first; asked again from saved state


class Purpose(models.TextChoices):
    """What a model call is for."""

    REPLY = "reply"
    COMPACTION = "compaction"  # its answer is a summary that takes the place of older messages (R5)


class ModelCall(models.Model):
    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    session = models.ForeignKey(Session, models.CASCADE, related_name="calls", db_index=False)
    # Null for a compaction that was asked for while no turn was open.
    turn = models.ForeignKey(
        Turn, models.CASCADE, null=True, related_name="calls", db_index=False, db_constraint=False
    )
    purpose = models.CharField(
        max_length=10, choices=Purpose, default=Purpose.REPLY, db_default=Purpose.REPLY
    )
    config = models.ForeignKey(
        AgentConfig, models.PROTECT, related_name="+", db_index=False, db_constraint=False
    )
    attempt = models.IntegerField()
    # The last entry that the request covers.
    covers_seq = models.BigIntegerField()
    state = models.CharField(max_length=11, choices=ModelCallState, default=ModelCallState.STARTED)
    # Tokens set aside for it in the budget of its tree, until it ends (R8); null where there is no tree.
    reserved = models.BigIntegerField(null=True, blank=True)
    error = models.JSONField(null=True, blank=True)
    # Whether the provider may have charged for an attempt that brought no reply.
    may_be_billed = models.BooleanField(default=False)
    input_tokens = models.BigIntegerField(default=0)
    output_tokens = models.BigIntegerField(default=0)
    cached_tokens = models.BigIntegerField(default=0)
    reasoning_tokens = models.BigIntegerField(default=0)
    cost = models.DecimalField(max_digits=18, decimal_places=9, null=True, blank=True)
    first_token_seconds = models.FloatField(null=True, blank=True)
    started_at = CreatedAt()
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["session"],
                condition=models.Q(state=ModelCallState.STARTED),
                name="model_call_one_open",
            ),
        ]
        # Beside these, a migration makes a BRIN index on `started_at`, for usage in a range of time.
        indexes = [models.Index(fields=["session", "started_at"], name="model_call_of_session")]

    def __str__(self) -> str:
        return f"{self.id} {self.state}"
