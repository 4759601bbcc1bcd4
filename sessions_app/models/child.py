"""Subagents as their parents know them, and what the sessions of one tree use together."""

from django.db import models

from sessions_app.models.fields import CreatedAt
from sessions_app.models.session import Session


class Child(models.Model):
    """A session that another one started. Locked after both sessions' rows (L11)."""

    session = models.OneToOneField(Session, models.CASCADE, primary_key=True, related_name="child")
    parent = models.ForeignKey(Session, models.CASCADE, related_name="child_rows")
    # The call that started it, and the parent's turn that call belongs to.
    tool_call = models.UUIDField()
    turn = models.UUIDField()
    # Whether the parent has yet to be told how what it works on ends.
    working = models.BooleanField(default=True)
    # Whether the parent's model has seen how it ended.
    seen = models.BooleanField(default=False, db_default=False)
    # How many turns it had when it last began to work.
    turns_before = models.IntegerField(default=0)
    # How its work ended the last time: status, reason and error of a turn.
    status = models.CharField(max_length=10, null=True, blank=True)
    reason = models.CharField(max_length=20, null=True, blank=True)
    error = models.JSONField(null=True, blank=True)
    created_at = CreatedAt()

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=models.Q(working=True) | models.Q(status__isnull=False, reason__isnull=False),
                name="child_at_rest_has_an_end",
            ),
        ]
        indexes = [
            models.Index(fields=["parent"], name="child_working", condition=models.Q(working=True)),
        ]

    def __str__(self) -> str:
        return f"{self.session_id} of {self.parent_id}"


class TreeBudget(models.Model):
    """What a session and all below it have used, and what calls under way have reserved (R8).

    One row per tree, made with the first subagent and locked last (L11).
    """

    # The session at the top.
    session = models.OneToOneField(Session, models.CASCADE, primary_key=True, related_name="tree_budget")
    model_calls = models.IntegerField(default=0)
    tool_calls = models.IntegerField(default=0)
    tokens = models.BigIntegerField(default=0)
    cost = models.DecimalField(max_digits=18, decimal_places=9, default=0)
    # Some calls have a cost that nobody knows.
    unpriced = models.BooleanField(default=False)
    # How often people let the tree go on at a limit: {"tokens": 1}.
    granted = models.JSONField(default=dict, db_default={}, blank=True)
    reserved_model_calls = models.IntegerField(default=0)
    reserved_tokens = models.BigIntegerField(default=0)

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=models.Q(reserved_model_calls__gte=0, reserved_tokens__gte=0),
                name="tree_budget_reserves_nothing_negative",
            ),
        ]

    def __str__(self) -> str:
        return str(self.session_id)
