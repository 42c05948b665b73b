"""Terms that are in force until an operator takes them away: the machine of budgets, limits and narrowings.

proposed → in_force → over
proposed → over

The context is the terms, which never change: for others it is taken away, and another takes its place.
"""

from interlock.workflows.definition import Definition, Field, Guard, T


def terms(
    type_: str,
    summary: str,
    *fields: Field,
    when: tuple[Guard, ...] = (),
    away: str = "remove",
    over: str = "removed",
) -> Definition:
    """The machine of a kind of terms: `away` is the trigger that ends them, `over` the state that it leads to."""
    return Definition(
        type=type_,
        version="1.0.0",
        summary=summary,
        order=(("proposed",), ("in_force",), (over,)),
        initial="proposed",
        terminal=frozenset({over}),
        resting=frozenset({"in_force"}),
        by="operator",
        transitions=(
            T("enforce", "proposed", "in_force", when=when, severity="warning"),
            T(away, ("proposed", "in_force"), over, when=when, severity="warning"),
        ),
        fields=fields,
        required_metadata=("terms",),
    )
