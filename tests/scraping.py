"""Scrape the exporter in process, and ask promtool which of our alerts fire on what it said."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy.exc import SQLAlchemyError

from interlock.workers.operations import metrics_server
from interlock.workers.runtime import Runtime
from tests.promtool import fired

RULES = Path(__file__).parents[1] / "ops" / "prometheus" / "interlock.rules.yml"
EVERY_SECONDS = 15
Key = tuple[str, tuple[tuple[str, str], ...]]
Scraped = Mapping[Key, float]


def scraped(runtime: Runtime) -> Scraped:
    """What the exporter says now."""
    found = {("up", (("instance", "test"), ("job", "interlock"))): 1.0}
    try:
        for family in text_string_to_metric_families(metrics_server.shown(runtime)):
            found |= {(each.name, tuple(sorted(each.labels.items()))): each.value for each in family.samples}
    except SQLAlchemyError:
        found = dict.fromkeys(found, 0.0)
    return found


@dataclass
class Prometheus:
    """What the exporter said, on a clock of its own; promtool says which alerts fired by then."""

    where: Path
    scrapes: int = 0
    series: dict[Key, list[float | None]] = field(default_factory=dict)

    def note(self, found: Scraped, times: int) -> None:
        """The exporter said this at the next `times` scrapes."""
        for key in self.series.keys() | found.keys():
            self.series.setdefault(key, [None] * self.scrapes).extend([found.get(key)] * times)
        self.scrapes += times

    @property
    def fired(self) -> dict[str, int]:
        """The alerts that fired so far, each with the scrape at which it first did."""
        return fired(RULES, self.series, range(self.scrapes), every_seconds=EVERY_SECONDS, where=self.where)
