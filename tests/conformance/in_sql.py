"""Plays sequences in the SQL form, in PostgreSQL itself."""

from collections.abc import Iterator
from collections.abc import Sequence as Listed
from itertools import groupby
from typing import Any

import psycopg
from psycopg.types.json import Jsonb

from interlock.workflows.definition import Definition
from interlock.workflows.forms.forms import FORMS
from interlock.workflows.forms.parts import identifier
from tests.conformance.sequences import Answer, Sequence, as_json, read_answer

# One call plays many sequences: a call for each step would take longer than the step.
PLAY = """
CREATE FUNCTION pg_temp.play_{schema}(played jsonb) RETURNS TABLE (answers jsonb) LANGUAGE plpgsql AS $$
DECLARE
    one jsonb; step jsonb; answer jsonb; due record; instance text;
BEGIN
    FOR one IN SELECT jsonb_array_elements(played) LOOP
        instance := "{schema}".create_instance(gen_random_uuid()::text, one->'context');
        answers := '[]';
        FOR step IN SELECT jsonb_array_elements(one->'steps') LOOP
            IF step->>'kind' = 'settle' THEN
                answer := "{schema}".settle(instance, step->>'trigger', (step->>'at_version')::integer,
                                            (step->>'granted')::boolean, step->'holds');
            ELSIF step->>'kind' = 'elapse' THEN
                UPDATE "{schema}".instances SET due_at = clock_timestamp() WHERE id = instance;
                SELECT * INTO STRICT due FROM "{schema}".due WHERE id = instance;
                answer := "{schema}".fire(instance, due.trigger, 'system', 'machinery', step->'holds',
                                          at_version => due.at_version);
            ELSE
                answer := "{schema}".fire(instance, step->>'trigger', step->>'by', step->>'authority', step->'holds');
            END IF;
            answers := answers || jsonb_build_array(answer || (
                SELECT jsonb_build_object('state', state, 'timer', CASE WHEN due_at IS NOT NULL THEN due_trigger END)
                  FROM "{schema}".instances WHERE id = instance));
        END LOOP;
        RETURN NEXT;
    END LOOP;
END $$"""


class InPostgres:
    """The SQL form on a connection that may create schemas; each definition is installed when it is first played."""

    def __init__(self, connection: "psycopg.Connection[Any]") -> None:
        self._connection = connection
        self._installed: set[str] = set()

    def play(self, played: Listed[Sequence]) -> Iterator[tuple[Answer, ...]]:
        """The answers to each sequence; those of a definition stand together."""
        for definition, group in groupby(played, lambda each: each.definition):
            schema = self._install(definition)
            said = Jsonb([as_json(each) for each in group])
            for (answers,) in self._connection.execute(f"SELECT pg_temp.play_{schema}(%s)", (said,)):  # type: ignore[call-overload]
                yield tuple(map(read_answer, answers))

    def _install(self, definition: Definition) -> str:
        schema = identifier(definition)
        if schema not in self._installed:
            self._connection.execute(FORMS["sql"].write(definition))  # type: ignore[call-overload]
            self._connection.execute(PLAY.format(schema=schema))  # type: ignore[call-overload]
            self._installed.add(schema)
        return schema
