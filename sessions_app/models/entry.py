"""The log. Append-only: a trigger refuses updates, and deletes outside the retention role of code (S1)."""

from django.db import models

from sessions_app.ids import new_id
from sessions_app.models.fields import CreatedAt, CurrentTransactionId, Xid8Field
from sessions_app.models.session import Session, Turn


class Entry(models.Model):
    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    session = models.ForeignKey(Session, models.CASCADE, related_name="entries", db_index=False)
    # Of the session's project, so that a project's feed needs no join.
    project_id = models.UUIDField()
    seq = models.BigIntegerField()
    parent_seq = models.BigIntegerField()
    kind = models.CharField(max_length=24)
    turn = models.ForeignKey(
        Turn, models.CASCADE, null=True, related_name="entries", db_index=False, db_constraint=False
    )
    attempt = models.IntegerField(null=True)
    actor = models.JSONField()
    created_at = CreatedAt()
    data = models.JSONField()
    xid = Xid8Field(db_default=CurrentTransactionId(), editable=False)

    class Meta:
        verbose_name_plural = "entries"
        constraints = [
            models.UniqueConstraint(fields=["session", "seq"], name="entry_seq_unique"),
            models.CheckConstraint(
                condition=models.Q(seq__gte=1, parent_seq__gte=0, parent_seq__lt=models.F("seq")),
                name="entry_follows_its_parent",
            ),
        ]
        indexes = [
            # The project feed's: what was committed behind a snapshot (F2).
            models.Index(fields=["project_id", "xid"], name="entry_of_project"),
            # What a branch is found by, among very many entries.
            models.Index(
                fields=["session", "seq"],
                name="entry_landmark",
                condition=models.Q(kind__in=["branch_moved", "checkpoint"]),
            ),
            # What a session with limits was warned of, in a log of any length (R8).
            models.Index(
                fields=["session"], name="entry_limit_warning", condition=models.Q(kind="limit_warning")
            ),
        ]

    def __str__(self) -> str:
        return f"{self.session_id}:{self.seq} {self.kind}"
