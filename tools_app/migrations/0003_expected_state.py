"""Lets one statement fail where a call was not in the state it was to leave, without a look at the answer.

The step commit sends its writes in a pipeline; asking how many rows changed would cost it a round trip.
"""

from django.db import migrations

EXPECTED = """
CREATE FUNCTION tool_calls_expected(changed bigint, wanted bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF changed <> wanted THEN
        RAISE EXCEPTION 'only % of % tool calls were in the state that was expected', changed, wanted
            USING ERRCODE = 'restrict_violation', CONSTRAINT = 'tool_call_expected_state';
    END IF;
END $$;
"""


class Migration(migrations.Migration):
    dependencies = [("tools_app", "0002_guards")]
    operations = [
        migrations.RunSQL(EXPECTED, "DROP FUNCTION tool_calls_expected(bigint, bigint);"),
    ]
