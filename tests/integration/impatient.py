"""What `celery -A` loads in tests of a node's limits: Interlock's app with limits that a test can wait for."""

import os

from interlock.workers.broker import time_limits
from interlock.workers.main import app

__all__ = ["app"]

for each in app.tasks.values():
    each.soft_time_limit, each.time_limit = 1.0, 2.0
app.conf.worker_max_memory_per_child = int(os.environ.get("MOST_KIB", app.conf.worker_max_memory_per_child))
time_limits.MEASURED_EACH = 1
