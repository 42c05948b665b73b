"""The `signal` of the standard library without its enumerations, which take a quarter of the shim's start-up time."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
else:
    import _signal as signal

__all__ = ["signal"]
