import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("tools_app", "0005_answers_are_final")]

    operations = [
        migrations.CreateModel(
            name="ChildWait",
            fields=[
                (
                    "tool_call",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="child_wait",
                        serialize=False,
                        to="tools_app.toolcall",
                    ),
                ),
                ("children", models.JSONField()),
                (
                    "mode",
                    models.CharField(choices=[("all", "All"), ("any", "Any")], default="all", max_length=3),
                ),
            ],
        ),
    ]
