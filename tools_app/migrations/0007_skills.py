"""Skills and their versions, which never change."""

import django.db.models.deletion
from django.db import migrations, models

import sessions_app.ids
import sessions_app.models.fields

GUARDS = """
CREATE TRIGGER skill_version_is_final BEFORE UPDATE ON tools_app_skillversion
    FOR EACH ROW EXECUTE FUNCTION tenure_refuse('changing a version of a skill');

CREATE TRIGGER skill_only_grows BEFORE UPDATE ON tools_app_skill
    FOR EACH ROW WHEN (NEW.version < OLD.version) EXECUTE FUNCTION tenure_refuse('turning back a counter');
"""

UNDO = """
DROP TRIGGER skill_only_grows ON tools_app_skill;
DROP TRIGGER skill_version_is_final ON tools_app_skillversion;
"""


def moment() -> sessions_app.models.fields.CreatedAt:
    return sessions_app.models.fields.CreatedAt(
        db_default=sessions_app.models.fields.ClockTimestamp(), editable=False
    )


class Migration(migrations.Migration):
    dependencies = [("sessions_app", "0011_session_todos"), ("tools_app", "0006_waits_for_subagents")]

    operations = [
        migrations.CreateModel(
            name="Skill",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=sessions_app.ids.new_id, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("name", models.CharField(max_length=100)),
                ("version", models.PositiveIntegerField(default=0)),
                ("created_at", moment()),
                ("updated_at", moment()),
                ("deleted_at", models.DateTimeField(blank=True, null=True)),
                (
                    "project",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="skills",
                        to="sessions_app.project",
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("project", "name"), name="skill_name_unique")
                ],
            },
        ),
        migrations.CreateModel(
            name="SkillVersion",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("version", models.PositiveIntegerField()),
                ("description", models.TextField()),
                ("instructions", models.TextField()),
                ("created_by", models.JSONField()),
                ("reviewed_by", models.JSONField(blank=True, null=True)),
                ("created_at", moment()),
                (
                    "skill",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="versions",
                        to="tools_app.skill",
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("skill", "version"), name="skill_version_unique")
                ],
            },
        ),
        migrations.RunSQL(GUARDS, UNDO),
    ]
