"""The project feed's index, and tickets for sockets."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

import sessions_app.ids
import sessions_app.models.fields


class Migration(migrations.Migration):

    dependencies = [
        ('sessions_app', '0011_session_todos'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='Ticket',
            fields=[
                ('id', models.UUIDField(default=sessions_app.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ('digest', models.CharField(max_length=64, unique=True)),
                ('created_at', sessions_app.models.fields.CreatedAt(db_default=sessions_app.models.fields.ClockTimestamp(), editable=False)),
                ('expires_at', models.DateTimeField()),
            ],
        ),
        migrations.AddIndex(
            model_name='entry',
            index=models.Index(fields=['project_id', 'xid'], name='entry_of_project'),
        ),
        migrations.AddField(
            model_name='ticket',
            name='key',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='sessions_app.apikey'),
        ),
        migrations.AddField(
            model_name='ticket',
            name='project',
            field=models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='sessions_app.project'),
        ),
        migrations.AddField(
            model_name='ticket',
            name='session',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='sessions_app.session'),
        ),
        migrations.AddField(
            model_name='ticket',
            name='user',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='+', to=settings.AUTH_USER_MODEL),
        ),
        migrations.AddIndex(
            model_name='ticket',
            index=models.Index(fields=['expires_at'], name='ticket_expiry'),
        ),
        migrations.AddConstraint(
            model_name='ticket',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('key__isnull', False), ('user', None)), models.Q(('key', None), ('user__isnull', False)), _connector='OR'), name='ticket_has_one_holder'),
        ),
    ]
