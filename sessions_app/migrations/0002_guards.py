"""What the database refuses whatever our code does: the log changes, states move backwards.

The `WHEN` clauses hold the rules, so a legal write never enters a function.
"""

from django.db import migrations

REFUSE = """
CREATE FUNCTION tenure_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '%: % refused', TG_TABLE_NAME, TG_ARGV[0] USING ERRCODE = 'restrict_violation';
END $$;

-- S1: retention and project deletion run as their own role of code, which says so in its transaction.
CREATE FUNCTION tenure_retention() RETURNS boolean LANGUAGE sql STABLE AS
$$ SELECT coalesce(current_setting('tenure.retention', true), '') = 'on' $$;

CREATE TRIGGER entry_is_final BEFORE UPDATE ON sessions_app_entry
    FOR EACH ROW EXECUTE FUNCTION tenure_refuse('changing an entry');
CREATE TRIGGER entry_stays BEFORE DELETE ON sessions_app_entry
    FOR EACH ROW WHEN (NOT tenure_retention()) EXECUTE FUNCTION tenure_refuse('deleting an entry');

CREATE TRIGGER config_is_final BEFORE UPDATE ON sessions_app_agentconfig
    FOR EACH ROW EXECUTE FUNCTION tenure_refuse('changing a config');

CREATE TRIGGER session_only_grows BEFORE UPDATE ON sessions_app_session
    FOR EACH ROW
    WHEN (NEW.next_seq < OLD.next_seq OR NEW.attempt < OLD.attempt OR NEW.work_rev < OLD.work_rev)
    EXECUTE FUNCTION tenure_refuse('turning back a counter');

CREATE TRIGGER turn_ends_once BEFORE UPDATE ON sessions_app_turn
    FOR EACH ROW WHEN (OLD.status <> 'running' AND NEW.status <> OLD.status)
    EXECUTE FUNCTION tenure_refuse('changing the end of a turn');

CREATE TRIGGER input_is_taken_once BEFORE UPDATE ON sessions_app_input
    FOR EACH ROW WHEN (OLD.state <> 'received' AND NEW.state <> OLD.state)
    EXECUTE FUNCTION tenure_refuse('changing the state of a taken input');

CREATE TRIGGER model_call_ends_once BEFORE UPDATE ON sessions_app_modelcall
    FOR EACH ROW WHEN (OLD.state <> 'started' AND NEW.state <> OLD.state)
    EXECUTE FUNCTION tenure_refuse('changing the end of a model call');

-- A step updates its session's row in place; that needs room on the page (HOT).
ALTER TABLE sessions_app_session SET (fillfactor = 60);

CREATE TRIGGER worker_stays_dead BEFORE UPDATE ON sessions_app_worker
    FOR EACH ROW WHEN (OLD.dead AND NOT NEW.dead)
    EXECUTE FUNCTION tenure_refuse('reviving a dead worker');
"""

UNDO = """
ALTER TABLE sessions_app_session RESET (fillfactor);
DROP TRIGGER worker_stays_dead ON sessions_app_worker;
DROP TRIGGER model_call_ends_once ON sessions_app_modelcall;
DROP TRIGGER input_is_taken_once ON sessions_app_input;
DROP TRIGGER turn_ends_once ON sessions_app_turn;
DROP TRIGGER session_only_grows ON sessions_app_session;
DROP TRIGGER config_is_final ON sessions_app_agentconfig;
DROP TRIGGER entry_stays ON sessions_app_entry;
DROP TRIGGER entry_is_final ON sessions_app_entry;
DROP FUNCTION tenure_retention();
DROP FUNCTION tenure_refuse();
"""


class Migration(migrations.Migration):
    dependencies = [("sessions_app", "0001_initial")]
    operations = [migrations.RunSQL(REFUSE, UNDO)]
