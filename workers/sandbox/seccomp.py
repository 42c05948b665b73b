"""System calls that a sandbox limits or refuses, because the kernel charges the resources they give to no process.

A classic BPF program as seccomp(2) takes it, for bubblewrap's `--seccomp`. It is written out here because libseccomp
would have to be installed on each machine for a few dozen instructions. Numbers are those of the kernel's syscall
tables, architectures those of linux/audit.h; on other architectures nothing is filtered.
"""

import errno
from dataclasses import dataclass
from functools import cache
from struct import pack

SEGMENT_BYTES = 64 << 10  # times 4,096 of them (shmmni) is what `/dev/shm` may hold
SEMAPHORES = 250  # in a set, as was Linux's own limit for long (semmsl)
_X32 = 0x40000000  # the first number of the x32 ABI, which nothing needs
_LOAD, _EQUAL, _ABOVE, _AT_LEAST, _RETURN = 0x20, 0x15, 0x25, 0x35, 0x06  # linux/bpf_common.h
_NUMBER, _ARCHITECTURE, _SECOND = 0, 4, 24  # struct seccomp_data, little endian: args[1]
_ALLOW, _FAIL = 0x7FFF0000, 0x00050000  # SECCOMP_RET_ALLOW; SECCOMP_RET_ERRNO, with the error in its low half


@dataclass(frozen=True)
class Calls:
    """System call numbers of one architecture; from `end` on, all are refused. Calls on keyrings are refused, too: a
    command would have the keyrings of the user who started Interlock."""

    architecture: int
    shmget: int | None
    semget: int | None
    refused: tuple[int, ...]
    end: int | None = None


TABLES = (
    Calls(0xC000003E, shmget=29, semget=64, refused=(248, 249, 250), end=_X32),  # x86_64
    Calls(0x40000003, shmget=None, semget=None, refused=(117, 393, 395, 286, 287, 288)),  # i386: all of System V's too
    Calls(0xC00000B7, shmget=194, semget=190, refused=(217, 218, 219)),  # aarch64
    Calls(0x40000028, shmget=307, semget=299, refused=(309, 310, 311)),  # arm
)


@cache
def program() -> bytes:
    """The filter. Calls that an architecture's part does not mention are allowed."""
    return b"".join(map(_part, TABLES)) + _op(_RETURN, _ALLOW)


def _part(calls: Calls) -> bytes:
    body = _op(_LOAD, _NUMBER)
    if calls.end is not None:
        body += _refused(_AT_LEAST, calls.end)
    for number in calls.refused:
        body += _refused(_EQUAL, number)
    for bounded, limit in ((calls.shmget, SEGMENT_BYTES), (calls.semget, SEMAPHORES)):
        if bounded is not None:
            body += _bounded(bounded, limit)
    body += _op(_RETURN, _ALLOW)
    return _op(_LOAD, _ARCHITECTURE) + _op(_EQUAL, calls.architecture, otherwise=len(body) // 8) + body


def _refused(comparison: int, number: int) -> bytes:
    """Fail as if there were no such system call."""
    return _op(comparison, number, otherwise=1) + _op(_RETURN, _FAIL | errno.ENOSYS)


def _bounded(number: int, limit: int) -> bytes:
    """If the second argument is above our limit, fail as the system does above its own."""
    return (
        _op(_EQUAL, number, otherwise=6)
        + _op(_LOAD, _SECOND + 4)
        + _op(_EQUAL, 0, otherwise=2)
        + _op(_LOAD, _SECOND)
        + _op(_ABOVE, limit, otherwise=1)
        + _op(_RETURN, _FAIL | errno.EINVAL)
        + _op(_RETURN, _ALLOW)
    )


def _op(code: int, operand: int, otherwise: int = 0) -> bytes:
    """One instruction; a comparison that fails skips `otherwise` instructions."""
    return pack("<HBBI", code, 0, otherwise, operand)
