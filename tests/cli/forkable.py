"""The last module that the fork server imports: does once what each fork would do again, and stops collections."""

import gc

from interlock.workers.settings import Settings

Settings()  # builds the validators
gc.collect()
gc.freeze()  # a collection in a fork would look at, and so copy, all that was imported
