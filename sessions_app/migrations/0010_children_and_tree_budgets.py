import django.db.models.deletion
from django.db import migrations, models

import sessions_app.models.fields


class Migration(migrations.Migration):
    dependencies = [
        ("sessions_app", "0009_end_of_lease"),
    ]

    operations = [
        migrations.AddField(
            model_name="modelcall",
            name="reserved",
            field=models.BigIntegerField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name="session",
            name="tree",
            field=models.UUIDField(blank=True, null=True),
        ),
        migrations.CreateModel(
            name="TreeBudget",
            fields=[
                (
                    "session",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="tree_budget",
                        serialize=False,
                        to="sessions_app.session",
                    ),
                ),
                ("model_calls", models.IntegerField(default=0)),
                ("tool_calls", models.IntegerField(default=0)),
                ("tokens", models.BigIntegerField(default=0)),
                ("cost", models.DecimalField(decimal_places=9, default=0, max_digits=18)),
                ("unpriced", models.BooleanField(default=False)),
                ("reserved_model_calls", models.IntegerField(default=0)),
                ("reserved_tokens", models.BigIntegerField(default=0)),
            ],
            options={
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("reserved_model_calls__gte", 0), ("reserved_tokens__gte", 0)),
                        name="tree_budget_reserves_nothing_negative",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="Child",
            fields=[
                (
                    "session",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="child",
                        serialize=False,
                        to="sessions_app.session",
                    ),
                ),
                ("tool_call", models.UUIDField()),
                ("turn", models.UUIDField()),
                ("working", models.BooleanField(default=True)),
                ("turns_before", models.IntegerField(default=0)),
                ("status", models.CharField(blank=True, max_length=10, null=True)),
                ("reason", models.CharField(blank=True, max_length=20, null=True)),
                ("error", models.JSONField(blank=True, null=True)),
                (
                    "created_at",
                    sessions_app.models.fields.CreatedAt(
                        db_default=sessions_app.models.fields.ClockTimestamp(), editable=False
                    ),
                ),
                (
                    "parent",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="child_rows",
                        to="sessions_app.session",
                    ),
                ),
            ],
            options={
                "indexes": [
                    models.Index(
                        condition=models.Q(("working", True)), fields=["parent"], name="child_working"
                    )
                ],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            ("working", True),
                            models.Q(("reason__isnull", False), ("status__isnull", False)),
                            _connector="OR",
                        ),
                        name="child_at_rest_has_an_end",
                    )
                ],
            },
        ),
    ]
