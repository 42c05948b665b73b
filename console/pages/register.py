"""The pages in the order of the navigation. To add one:

1. a module of `interlock.console.pages` with `router = APIRouter()`, whose routes take a `Visitor`, read as the API's
   routes do, and answer with `rendering.page`; those that write are posts, and answer with `rendering.say`;
2. its template, which extends `base.html` and fills the block `main`; what has changed is replaced there by itself;
3. its row here;
4. its row in `tests/console/rights.py`: what which role is answered. Tests fail until it is there.
"""

from dataclasses import dataclass
from types import ModuleType

from interlock.console.pages import (
    approvals,
    boards,
    brakes,
    breakers,
    dead,
    history,
    instances,
    overview,
    runs,
    schedules,
    stuck,
    tokens,
    workers,
)


@dataclass(frozen=True, slots=True)
class ConsolePage:
    """A page of the navigation.

    Attributes:
        path, title: its address and name.
        key: `g` and this key open it.
        module: whose `router` has its routes.
    """

    path: str
    title: str
    key: str
    module: ModuleType


PAGES = (
    ConsolePage("/", "Overview", "o", overview),
    ConsolePage("/boards", "Boards", "b", boards),
    ConsolePage("/instances", "Instances", "i", instances),
    ConsolePage("/runs", "Runs", "r", runs),
    ConsolePage("/approvals", "Approvals", "a", approvals),
    ConsolePage("/stuck", "Stuck", "s", stuck),
    ConsolePage("/dead", "Dead letters", "d", dead),
    ConsolePage("/brakes", "Brakes", "k", brakes),
    ConsolePage("/breakers", "Breakers", "e", breakers),
    ConsolePage("/workers", "Workers", "w", workers),
    ConsolePage("/schedules", "Schedules", "c", schedules),
    ConsolePage("/history", "History", "h", history),
    ConsolePage("/tokens", "Tokens", "t", tokens),
)
