"""T7 in the database: what a remembered decision covers never grows, and neither does what it is taken from."""

from django.db import migrations

GUARDS = """
CREATE TRIGGER remembered_never_grows BEFORE UPDATE ON tools_app_remembereddecision
    FOR EACH ROW
    WHEN ((NEW.project_id, NEW.session_id, NEW.tool, NEW.pattern, NEW.arguments, NEW.key, NEW.created_by)
          IS DISTINCT FROM
          (OLD.project_id, OLD.session_id, OLD.tool, OLD.pattern, OLD.arguments, OLD.key, OLD.created_by)
          OR COALESCE(NEW.expires_at, 'infinity') > COALESCE(OLD.expires_at, 'infinity'))
    EXECUTE FUNCTION tenure_refuse('widening a remembered decision');
CREATE TRIGGER remembered_is_revoked_once BEFORE UPDATE ON tools_app_remembereddecision
    FOR EACH ROW
    WHEN (OLD.revoked_at IS NOT NULL
          AND (NEW.revoked_at, NEW.revoked_by) IS DISTINCT FROM (OLD.revoked_at, OLD.revoked_by))
    EXECUTE FUNCTION tenure_refuse('changing a revocation');
CREATE TRIGGER approval_rule_is_what_asked BEFORE UPDATE ON tools_app_approval
    FOR EACH ROW
    WHEN ((NEW.rule, NEW.pattern) IS DISTINCT FROM (OLD.rule, OLD.pattern))
    EXECUTE FUNCTION tenure_refuse('changing what is asked');
"""

UNDO = """
DROP TRIGGER approval_rule_is_what_asked ON tools_app_approval;
DROP TRIGGER remembered_is_revoked_once ON tools_app_remembereddecision;
DROP TRIGGER remembered_never_grows ON tools_app_remembereddecision;
"""


class Migration(migrations.Migration):
    dependencies = [("tools_app", "0010_calls_keep_their_config")]
    operations = [migrations.RunSQL(GUARDS, UNDO)]
