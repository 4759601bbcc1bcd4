"""H2 in the database: the first answer is the answer, and what was asked stays what was asked."""

from django.db import migrations

GUARDS = """
CREATE TRIGGER approval_is_decided_once BEFORE UPDATE ON tools_app_approval
    FOR EACH ROW
    WHEN (OLD.state <> 'open' AND (NEW.state, NEW.decided_by, NEW.decided_at, NEW.reason)
          IS DISTINCT FROM (OLD.state, OLD.decided_by, OLD.decided_at, OLD.reason))
    EXECUTE FUNCTION tenure_refuse('changing a decision');
CREATE TRIGGER approval_is_what_was_asked BEFORE UPDATE ON tools_app_approval
    FOR EACH ROW
    WHEN ((NEW.session_id, NEW.turn_id, NEW.tool_call_id, NEW.name, NEW.arguments, NEW.digest)
          IS DISTINCT FROM
          (OLD.session_id, OLD.turn_id, OLD.tool_call_id, OLD.name, OLD.arguments, OLD.digest))
    EXECUTE FUNCTION tenure_refuse('changing what is asked');
CREATE TRIGGER approval_stays BEFORE DELETE ON tools_app_approval
    FOR EACH ROW WHEN (NOT tenure_retention()) EXECUTE FUNCTION tenure_refuse('deleting an approval');

CREATE TRIGGER question_is_answered_once BEFORE UPDATE ON tools_app_question
    FOR EACH ROW
    WHEN (OLD.state <> 'open' AND (NEW.state, NEW.answers, NEW.answered_by, NEW.answered_at)
          IS DISTINCT FROM (OLD.state, OLD.answers, OLD.answered_by, OLD.answered_at))
    EXECUTE FUNCTION tenure_refuse('changing an answer');
CREATE TRIGGER question_is_what_was_asked BEFORE UPDATE ON tools_app_question
    FOR EACH ROW
    WHEN ((NEW.session_id, NEW.turn_id, NEW.tool_call_id, NEW.questions)
          IS DISTINCT FROM (OLD.session_id, OLD.turn_id, OLD.tool_call_id, OLD.questions))
    EXECUTE FUNCTION tenure_refuse('changing what is asked');
CREATE TRIGGER question_stays BEFORE DELETE ON tools_app_question
    FOR EACH ROW WHEN (NOT tenure_retention()) EXECUTE FUNCTION tenure_refuse('deleting a question');
"""

UNDO = """
DROP TRIGGER question_stays ON tools_app_question;
DROP TRIGGER question_is_what_was_asked ON tools_app_question;
DROP TRIGGER question_is_answered_once ON tools_app_question;
DROP TRIGGER approval_stays ON tools_app_approval;
DROP TRIGGER approval_is_what_was_asked ON tools_app_approval;
DROP TRIGGER approval_is_decided_once ON tools_app_approval;
"""


class Migration(migrations.Migration):
    dependencies = [("tools_app", "0004_approvals_and_questions")]
    operations = [migrations.RunSQL(GUARDS, UNDO)]
