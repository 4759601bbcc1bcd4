from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("sessions_app", "0010_children_and_tree_budgets")]

    operations = [
        migrations.AddField(
            model_name="session", name="todos", field=models.JSONField(blank=True, null=True)
        ),
    ]
