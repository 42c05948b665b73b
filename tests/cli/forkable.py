"""The last module that the fork server imports: does once what each fork would do again, and makes forks cheap."""

from interlock.cli.index import MODULES, loaded
from interlock.supervisor.processes.importing import without_collections
from interlock.workers.settings import Settings
from interlock.workflows.catalogue import catalogue
from tests.huge_pages import collapse

with without_collections():  # a collection in a fork would look at, and so copy, all that was imported
    Settings()  # builds the validators
    catalogue()  # checks the shipped definitions
    for name in MODULES:
        loaded(name)
collapse()
