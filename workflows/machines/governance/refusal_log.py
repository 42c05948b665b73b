"""The refused attempts of one database login in a project (docs/spec/refusals.md). It never ends.

open → open

PostgreSQL alone asks for `refuse` (`record_refusal`), and limits how often.
"""

from interlock.workflows.definition import Definition, T

REFUSAL_LOG = Definition(
    type="refusal_log",
    version="1.0.0",
    summary="What a database login was refused in a project.",
    order=(("open",),),
    initial="open",
    terminal=frozenset(),
    resting=frozenset({"open"}),
    by="machinery",
    transitions=(T("refuse", "open", "open", severity="warning"),),
)
