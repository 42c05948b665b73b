"""Every door, by its name."""

from collections.abc import Mapping

from tests.fuzz.door import Door
from tests.fuzz.doors.audits import AUDITS
from tests.fuzz.doors.backups import ARCHIVES, BACKUPS
from tests.fuzz.doors.configuration import CONFIGURATION
from tests.fuzz.doors.definitions import DEFINITIONS
from tests.fuzz.doors.firing import CONTEXTS_DOOR, REQUESTS
from tests.fuzz.doors.logs import LOGS
from tests.fuzz.doors.manifests import EXPORTS, HOMES
from tests.fuzz.doors.patches import PATCHES
from tests.fuzz.doors.plans import PLANS
from tests.fuzz.doors.reports import REPORTS
from tests.fuzz.doors.typed import TYPED

DOORS: Mapping[str, Door] = {
    each.name: each
    for each in (
        PLANS,
        LOGS,
        EXPORTS,
        REPORTS,
        BACKUPS,
        ARCHIVES,
        HOMES,
        CONFIGURATION,
        DEFINITIONS,
        PATCHES,
        TYPED,
        REQUESTS,
        CONTEXTS_DOOR,
        AUDITS,
    )
}
