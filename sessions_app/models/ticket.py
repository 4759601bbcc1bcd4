"""Tickets: what a browser opens a socket with. One use, a minute."""

from django.conf import settings
from django.db import models

from sessions_app.ids import new_id
from sessions_app.models.fields import CreatedAt
from sessions_app.models.project import ApiKey, Project
from sessions_app.models.session import Session


class Ticket(models.Model):
    """Stands for whoever asked for it; only its SHA-256 is stored. Using it deletes it."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    project = models.ForeignKey(Project, models.CASCADE, related_name="+", db_index=False)
    # The only session that it opens; null for any feed of the project.
    session = models.ForeignKey(Session, models.CASCADE, null=True, blank=True, related_name="+")
    key = models.ForeignKey(ApiKey, models.CASCADE, null=True, blank=True, related_name="+")
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.CASCADE, null=True, blank=True, related_name="+"
    )
    digest = models.CharField(max_length=64, unique=True)
    created_at = CreatedAt()
    expires_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=models.Q(key__isnull=False, user=None) | models.Q(key=None, user__isnull=False),
                name="ticket_has_one_holder",
            )
        ]
        indexes = [models.Index(fields=["expires_at"], name="ticket_expiry")]

    def __str__(self) -> str:
        return str(self.id)
