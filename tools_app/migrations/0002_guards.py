"""T1 in the database: the only edges of a tool call, and one result for ever."""

from django.db import migrations

GUARDS = """
CREATE TRIGGER tool_call_edges BEFORE UPDATE ON tools_app_toolcall
    FOR EACH ROW
    WHEN (NEW.state <> OLD.state AND NOT (
        (OLD.state = 'awaiting_approval' AND NEW.state IN ('ready', 'completed'))
        OR (OLD.state = 'ready' AND NEW.state IN ('running', 'waiting', 'completed'))
        OR (OLD.state = 'running' AND NEW.state = 'completed')
        OR (OLD.state = 'running' AND NEW.state = 'ready' AND OLD.rerun_safe)
        OR (OLD.state = 'waiting' AND NEW.state = 'completed')))
    EXECUTE FUNCTION tenure_refuse('an illegal state transition of a tool call');

CREATE TRIGGER tool_call_result_is_final BEFORE UPDATE ON tools_app_toolcall
    FOR EACH ROW
    WHEN (OLD.state = 'completed' AND (NEW.outcome, NEW.content, NEW.completed_at)
          IS DISTINCT FROM (OLD.outcome, OLD.content, OLD.completed_at))
    EXECUTE FUNCTION tenure_refuse('changing the result of a tool call');

CREATE TRIGGER tool_call_is_what_was_asked BEFORE UPDATE ON tools_app_toolcall
    FOR EACH ROW
    WHEN ((NEW.session_id, NEW.turn_id, NEW.message_seq, NEW.position, NEW.call_id, NEW.name, NEW.tool_class,
           NEW.rerun_safe, NEW.arguments)
          IS DISTINCT FROM
          (OLD.session_id, OLD.turn_id, OLD.message_seq, OLD.position, OLD.call_id, OLD.name, OLD.tool_class,
           OLD.rerun_safe, OLD.arguments))
    EXECUTE FUNCTION tenure_refuse('changing what was called');

CREATE TRIGGER tool_call_stays BEFORE DELETE ON tools_app_toolcall
    FOR EACH ROW WHEN (NOT tenure_retention()) EXECUTE FUNCTION tenure_refuse('deleting a tool call');
"""

UNDO = """
DROP TRIGGER tool_call_stays ON tools_app_toolcall;
DROP TRIGGER tool_call_is_what_was_asked ON tools_app_toolcall;
DROP TRIGGER tool_call_result_is_final ON tools_app_toolcall;
DROP TRIGGER tool_call_edges ON tools_app_toolcall;
"""


class Migration(migrations.Migration):
    dependencies = [("tools_app", "0001_initial"), ("sessions_app", "0002_guards")]
    operations = [migrations.RunSQL(GUARDS, UNDO)]
