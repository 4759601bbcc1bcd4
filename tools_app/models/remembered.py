"""Allowances that people gave for more than one call."""

from django.db import models
from django.db.models import Q

from sessions_app.ids import new_id
from sessions_app.models import Project, Session
from sessions_app.models.fields import CreatedAt
from tools_app.models.approval import Approval


class RememberedDecision(models.Model):
    """Calls of this tool like the one that was allowed, in one session or, without one, in the whole project.

    Like it are calls that the same pattern of a rule asks about or, without a pattern, those with equal arguments.
    """

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    project = models.ForeignKey(Project, models.CASCADE, related_name="+", db_index=False)
    session = models.ForeignKey(Session, models.CASCADE, null=True, blank=True, related_name="+")
    tool = models.CharField(max_length=200)
    # One of the two: the argument matchers of the rule that asked, or the arguments themselves.
    pattern = models.JSONField(null=True, blank=True)
    arguments = models.JSONField(null=True, blank=True)
    # A digest of that one, by which calls find it.
    key = models.CharField(max_length=64)
    approval = models.ForeignKey(Approval, models.SET_NULL, null=True, blank=True, related_name="+")
    created_by = models.JSONField()
    created_at = CreatedAt()
    expires_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)
    revoked_by = models.JSONField(null=True, blank=True)

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(pattern__isnull=False, arguments__isnull=True)
                | Q(pattern__isnull=True, arguments__isnull=False),
                name="remembered_covers_one_thing",
            ),
            models.CheckConstraint(
                condition=Q(revoked_at=None, revoked_by__isnull=True)
                | Q(revoked_at__isnull=False, revoked_by__isnull=False),
                name="remembered_revocation_is_whole",
            ),
        ]
        indexes = [
            # Each call that would ask looks here.
            models.Index(
                fields=["project", "tool", "key"], name="remembered_holds", condition=Q(revoked_at=None)
            ),
            models.Index(fields=["project", "-created_at", "-id"], name="remembered_newest"),
        ]

    def __str__(self) -> str:
        return f"{self.tool} {self.id}"
