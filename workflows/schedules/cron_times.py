"""The times of a cron expression by the clocks on the wall, of which cronsim knows all but one (SCHEDULE-7)."""

from datetime import UTC

from cronsim import CronSim


class CronTimes(CronSim):
    """cronsim goes on to the next day that matches at its midnight, also where clocks are put forward just then.

    Such a day begins at 1 o'clock. Without this, `* 0 * * 0` would fire at that time, and `* 1 * * 0` not before 2.
    """

    def advance_month(self) -> None:
        """Go on to the first month that matches."""
        super().advance_month()
        self._exist()

    def advance_day(self) -> bool:
        """Go on to the first day that matches; whether it is another one."""
        moved = super().advance_day()
        self._exist()
        return moved

    def _exist(self) -> None:
        if zone := self.dt.tzinfo:  # there is none where minute and hour are fixed
            self.dt = self.dt.astimezone(UTC).astimezone(zone)
