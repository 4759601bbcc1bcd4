"""Inputs: stored first, delivered later (I1)."""

from django.db import models

from sessions_app.ids import new_id
from sessions_app.models.fields import CreatedAt
from sessions_app.models.session import Session, Turn


class Delivery(models.TextChoices):
    QUEUED = "queued"  # starts the next turn, one input a turn
    STEERING = "steering"  # joins the current turn at its next model call


class InputState(models.TextChoices):
    RECEIVED = "received"
    DELIVERED = "delivered"
    CANCELLED = "cancelled"
    REJECTED = "rejected"


class Input(models.Model):
    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    session = models.ForeignKey(Session, models.CASCADE, related_name="inputs", db_index=False)
    content = models.JSONField()
    delivery = models.CharField(max_length=8, choices=Delivery, default=Delivery.QUEUED)
    state = models.CharField(max_length=10, choices=InputState, default=InputState.RECEIVED)
    # The order in the queue, assigned under the session's lock; moving leaves gaps, so it is no index.
    rank = models.BigIntegerField()
    actor = models.JSONField()
    turn = models.ForeignKey(
        Turn,
        models.CASCADE,
        null=True,
        blank=True,
        related_name="inputs",
        db_constraint=False,
        db_index=False,
    )
    created_at = CreatedAt()

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=models.Q(state=InputState.DELIVERED, turn__isnull=False)
                | ~models.Q(state=InputState.DELIVERED) & models.Q(turn=None),
                name="input_delivered_has_a_turn",
            ),
        ]
        indexes = [
            models.Index(
                fields=["session", "rank"],
                name="input_waiting",
                condition=models.Q(state=InputState.RECEIVED),
            ),
            models.Index(fields=["session", "created_at", "id"], name="input_of_session"),
        ]

    def __str__(self) -> str:
        return f"{self.id} {self.state}"
