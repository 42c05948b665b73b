"""Attempts of untrusted commands to escape, and whether they succeed without a sandbox: the table of docs/security.md.

Each attempt is a shell line that prints `ESCAPED` on success, or leaves a trace that is visible from outside.
`tests/escaping.py` sets the variables.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Attempt:
    """One attempt.

    Attributes:
        line: the shell line.
        open_as_root, open_as_user: whether it succeeds without a sandbox if root, or another user, started Interlock.
        seen: the trace of a success outside: a file below the installation, a socket, or a key of `SEEN`.
        alone: whether it ends its command, so that it needs a command of its own.
    """

    line: str
    open_as_root: bool = False
    open_as_user: bool = True
    seen: str = ""
    alone: bool = False


def _connects(address: str, family: str = "AF_INET", kind: str = "SOCK_STREAM") -> str:
    said = f"s = socket.socket(socket.{family}, socket.{kind}); s.settimeout(2); s.connect({address}); "
    return f"$PY -c \"import socket; {said}s.send(b'x')\""


READS = 'grep -rqs "$PASSWORD" {} && echo ESCAPED'
PTRACE = """
import ctypes
others = [each for each in ($PPID, $WORKER) if each > 1]  # 1 is the sandbox's own
print('ESCAPED' if 0 in [ctypes.CDLL(None).ptrace(0x4206, each, 0, 0) for each in others] else 'no')
"""
FORGES = """
import os
for each in {*range(3, 256)} - {9}:  # the script's own
    try:
        os.write(each, b'{ \\\\"exit-code\\\\": 0 }')
        print('ESCAPED')
    except OSError:
        pass
"""
FORKS = """
import os, time
made = []
try:
    for _ in range(300):
        made.append(os.fork())
        if not made[-1]:
            time.sleep(20)
except OSError:
    pass
for each in made:
    os.kill(each, 9)
    os.waitpid(each, 0)
print('ESCAPED' if len(made) > 250 else 'no')
"""
WRITES_SQL = """
import json, sys
sys.path.append('$PACKAGES')
import psycopg
url = json.load(open('$TOP/home/servers.json'))['database_url']
psycopg.connect(url, autocommit=True).execute('INSERT INTO interlock.phases VALUES (chr(102))')
"""
JUDGE = "printf 'judge:\\n\\ttrue\\n' > Makefile; git -c user.name=c -c user.email=c commit -qam mine"

ATTEMPTS = {
    "reads the database's password": Attempt(READS.format("$TOP/home/servers.json")),
    "writes to the database as Interlock does": Attempt(f'$PYTHON -c "{WRITES_SQL}"', seen="table"),
    "reads the signing key": Attempt(READS.format("$TOP/home/keys")),
    "reads another worktree": Attempt(READS.format("$OTHERS"), open_as_root=True),
    "reads the user's home": Attempt(READS.format("$TOP/someone")),
    "reads the environment of who started it": Attempt(
        "grep -q SECRET_OF_THE_WORKER /proc/$PPID/environ && echo ESCAPED; "
        "grep -q . /proc/$WORKER/environ && echo ESCAPED",
        open_as_user=False,
    ),
    "reads another command's environment": Attempt(
        "grep -q SECRET_OF_ANOTHER /proc/$ANOTHER/environ && echo ESCAPED", open_as_root=True
    ),
    "writes the repository": Attempt("echo x > $TOP/repo/.git/evil", seen="repo/.git/evil"),
    "writes Interlock's own git directory": Attempt(
        'echo x > "$(dirname "$PWD")/.$(basename "$PWD").git/evil" && echo ESCAPED'
    ),
    "writes another worktree": Attempt("echo x > $OTHERS/new", open_as_root=True, seen="home/worktrees/r/other/new"),
    "writes outside of its place": Attempt("echo x > $TOP/public/new", open_as_root=True, seen="public/new"),
    "reaches a server on loopback": Attempt(_connects("('127.0.0.1', $TCP)"), open_as_root=True, seen="tcp"),
    "reaches a datagram socket": Attempt(
        _connects("('127.0.0.1', $UDP)", kind="SOCK_DGRAM"), open_as_root=True, seen="udp"
    ),
    "reaches an abstract socket": Attempt(
        _connects("'\\0'+'$ABSTRACT'", family="AF_UNIX"), open_as_root=True, seen="abstract"
    ),
    "reaches a socket by its path": Attempt(
        _connects("'$TOP/socket'", family="AF_UNIX"), open_as_root=True, seen="path"
    ),
    "signals others": Attempt("kill -0 $WORKER && echo ESCAPED"),
    "signals another command": Attempt("kill -0 $ANOTHER && echo ESCAPED", open_as_root=True),
    "watches others (ptrace)": Attempt(f'$PY -c "{PTRACE}"', open_as_user=False),
    "writes to its shim's files": Attempt(
        "for fd in /proc/$PPID/fd/* /proc/$WORKER/fd/*; do "
        "case $(readlink $fd) in socket:*) echo x > $fd && echo ESCAPED;; esac; done",
        open_as_user=False,
    ),
    "forges its result": Attempt(f'$PY -c "{FORGES}"', open_as_user=False, seen="success"),
    "changes its gate": Attempt(
        f"({JUDGE}; git update-ref refs/heads/main HEAD); cd $TOP/repo && {JUDGE}", seen="judge"
    ),
    "becomes root": Attempt(
        "su -c true </dev/null && echo ESCAPED; [ $(id -u) = 0 ] && echo ESCAPED", open_as_user=False
    ),
    "starts processes without end": Attempt(f'$PY -c "{FORKS}"', open_as_user=False),
    "writes a file without end": Attempt(
        "dd if=/dev/zero of=big bs=1M count=40; [ $(stat -c %s big) -gt 9000000 ] && echo ESCAPED; rm big",
        open_as_user=False,
    ),
    "fills the machine's `/tmp`": Attempt(
        "dd if=/dev/zero of=/tmp/$LONG bs=1M count=6 && echo ESCAPED; rm /tmp/$LONG", open_as_root=True
    ),
    "prints without end": Attempt("yes | head -c 3000000 >&9", open_as_user=False, seen="long"),
    "outlives its run": Attempt(
        "(setsid sleep $LONG &) > /dev/null; ( (sleep $LONG &) &) > /dev/null; nohup sleep $LONG > /dev/null &",
        open_as_user=False,
        seen="alive",
    ),
    "outlives its run, its shim killed and its mark cleared": Attempt(
        "env -i setsid sleep $LONG > /dev/null 2>&1 & sleep 0.2; kill -9 $PPID; sleep 1", seen="alive", alone=True
    ),
    "holds memory without end": Attempt(
        "head -c 200m /dev/zero | tail | sleep 15", open_as_user=False, seen="memory", alone=True
    ),
    "fills the disk": Attempt(
        "i=0; while [ $i -lt 400 ]; do dd if=/dev/zero of=big.$i bs=1M count=7; sleep 0.02; i=$((i+1)); done; sleep 9",
        open_as_user=False,
        seen="disk",
        alone=True,
    ),
}
TOGETHER = [name for name, each in ATTEMPTS.items() if not each.alone]
CONTROLS = {  # lines that must succeed everywhere; otherwise attempts would fail only because tools are missing
    "runs Python": "$PY -c 'print(\"ESCAPED\")'",
    "writes its own place": "echo x > mine && rm mine && echo ESCAPED",
    "reaches its own server": "$PY -c \"import socket; s = socket.create_server(('127.0.0.1', 0)); "
    "socket.create_connection(s.getsockname()); print('ESCAPED')\"",
    "signals itself": "kill -0 $$ && echo ESCAPED",
    "bears the installation's mark": "case $INTERLOCK_COMMAND in $TOP/home/*) echo ESCAPED;; esac",
}


def script(lines: Sequence[str]) -> str:
    """One shell script of all lines. It ends by printing the numbers of those that succeeded, and fails."""
    said = [
        f'({line}) 2>/dev/null | grep -q ESCAPED && through="$through {number}"' for number, line in enumerate(lines)
    ]
    find = 'for PY in $PYTHON /usr/bin/python3; do $PY -I -S -c pass 2>/dev/null && break; done; PY="$PY -I -S"'
    return "\n".join(["exec 9>&1", find, "through=", *said, 'echo "through:$through." >&2', "exit 9"])
