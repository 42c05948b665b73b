"""A definition with models, whose effect is an HTTP call that gets the JSON, as a user's module has it."""

import os
from collections.abc import Mapping

from pydantic import BaseModel

from interlock import Definition, webhook
from tests.small_machines import small_machine, tells

webhook(
    "tests_page",
    os.environ.get("TESTS_PAGER_URL", "http://127.0.0.1:9/unset"),
    secret=("file:pager/new", "file:pager/old"),
    retries=2,
    timeout=5.0,
)


class Where(BaseModel, extra="forbid"):
    """The context of an incident; HTTP calls do not get the default values (TYPED-5)."""

    host: str
    zone: str = "a"


class Severity(BaseModel, extra="forbid"):
    """How bad it is."""

    severity: int


INCIDENT = small_machine(
    "incident",
    "An incident that somebody is paged for.",
    "open paging | paged unheard",
    *tells("tests_page", "open page paging", done="took paged", failed="nobody_took unheard"),
    context=Where,
    data={"page": Severity},
)

WORKFLOWS: Mapping[tuple[str, str], Definition] = {("incident", "1.0.0"): INCIDENT}
