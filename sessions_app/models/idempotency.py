"""First answers, kept for replay (I4); written in the transaction of the effect."""

from django.db import models

from sessions_app.models.fields import CreatedAt


class IdempotencyRecord(models.Model):
    # "key:<id>" or "user:<id>", and the project: keys of different holders never meet (C120).
    holder = models.CharField(max_length=120)
    operation = models.CharField(max_length=500)
    key = models.CharField(max_length=255)
    fingerprint = models.CharField(max_length=64)
    status = models.SmallIntegerField()
    body = models.JSONField(null=True)
    created_at = CreatedAt()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["holder", "operation", "key"], name="idempotency_key_unique"),
        ]
        indexes = [models.Index(fields=["created_at"], name="idempotency_age")]

    def __str__(self) -> str:
        return f"{self.operation} {self.key}"
