"""T6: the project of a call, claims, and who answered. A call's answer is named once."""

import django.db.models.deletion
from django.db import migrations, models

WAITS_FOR_A_BACKEND = models.Q(("state", "waiting"), ("tool_class", "custom"))

FILL = """
UPDATE tools_app_toolcall c SET project_id = s.project_id
FROM sessions_app_session s WHERE s.id = c.session_id AND c.project_id IS NULL;
"""

GUARDS = """
CREATE TRIGGER tool_call_is_answered_once BEFORE UPDATE ON tools_app_toolcall
    FOR EACH ROW
    WHEN (OLD.answered_by IS NOT NULL AND NEW.answered_by IS DISTINCT FROM OLD.answered_by)
    EXECUTE FUNCTION tenure_refuse('changing who answered a tool call');
CREATE TRIGGER tool_call_stays_in_its_project BEFORE UPDATE ON tools_app_toolcall
    FOR EACH ROW
    WHEN (NEW.project_id IS DISTINCT FROM OLD.project_id)
    EXECUTE FUNCTION tenure_refuse('moving a tool call to another project');
"""

UNDO = """
DROP TRIGGER tool_call_stays_in_its_project ON tools_app_toolcall;
DROP TRIGGER tool_call_is_answered_once ON tools_app_toolcall;
"""


class Migration(migrations.Migration):
    dependencies = [("sessions_app", "0009_end_of_lease"), ("tools_app", "0007_skills")]

    operations = [
        migrations.AddField(
            "toolcall",
            "project",
            models.ForeignKey(
                null=True,
                db_constraint=False,
                db_index=False,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="+",
                to="sessions_app.project",
            ),
        ),
        migrations.RunSQL(FILL, migrations.RunSQL.noop),
        migrations.AlterField(
            "toolcall",
            "project",
            models.ForeignKey(
                db_constraint=False,
                db_index=False,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="+",
                to="sessions_app.project",
            ),
        ),
        migrations.AddField("toolcall", "answered_by", models.JSONField(blank=True, null=True)),
        migrations.AddField("toolcall", "updates", models.IntegerField(db_default=0, default=0)),
        migrations.AddField(
            "toolcall", "claim_token", models.CharField(blank=True, max_length=64, null=True)
        ),
        migrations.AddField("toolcall", "claimed_by", models.JSONField(blank=True, null=True)),
        migrations.AddField("toolcall", "claim_expires_at", models.DateTimeField(blank=True, null=True)),
        migrations.AddConstraint(
            "toolcall",
            models.CheckConstraint(
                condition=models.Q(
                    ("claim_expires_at", None), ("claim_token", None), ("claimed_by__isnull", True)
                )
                | models.Q(
                    ("claim_expires_at__isnull", False),
                    ("claim_token__isnull", False),
                    ("claimed_by__isnull", False),
                    ("tool_class", "custom"),
                ),
                name="tool_call_claim_is_whole",
            ),
        ),
        migrations.AddIndex(
            "toolcall", models.Index(fields=["project", "-created_at", "-id"], name="tool_call_newest")
        ),
        migrations.AddIndex(
            "toolcall",
            models.Index(
                condition=models.Q(("state", "completed"), _negated=True),
                fields=["project", "created_at", "id"],
                name="tool_call_project_open",
            ),
        ),
        migrations.AddIndex(
            "toolcall",
            models.Index(
                condition=WAITS_FOR_A_BACKEND & models.Q(("claim_expires_at", None)),
                fields=["project", "name", "created_at", "id"],
                name="tool_call_unclaimed",
            ),
        ),
        migrations.AddIndex(
            "toolcall",
            models.Index(
                condition=WAITS_FOR_A_BACKEND & models.Q(("claim_expires_at__isnull", False)),
                fields=["project", "name", "claim_expires_at"],
                name="tool_call_claimed",
            ),
        ),
        migrations.RunSQL(GUARDS, UNDO),
    ]
