"""The text forms of transparency logs, by C2SP: signed notes, checkpoints, and proofs of an entry. No signature is
checked here.

https://c2sp.org/signed-note, https://c2sp.org/tlog-checkpoint, https://c2sp.org/tlog-proof, https://c2sp.org/tlog-witness
"""

import re
from base64 import b64decode, b64encode
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from interlock.workflows.audit.merkle import Edge

HASH_BYTES = 32
LONGEST = 65_536  # characters of a note; ours have about 250, a cosignature about 150 more
PROOF = "c2sp.org/tlog-proof@v1"
DECIMAL = re.compile(r"0|[1-9][0-9]{0,18}")
SIGNATURE = re.compile(r"— ([^\s+]+) (\S+)")
CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f]")


class NoteSignature(NamedTuple):
    """A signature line, with its newline: the key's name, its id (4 bytes), and the signature."""

    name: str
    key_id: bytes
    signature: bytes

    def __str__(self) -> str:
        return f"— {self.name} {b64encode(self.key_id + self.signature).decode()}\n"


class Note(NamedTuple):
    """A text, with its last newline, and who signed it."""

    text: str
    signatures: tuple[NoteSignature, ...]

    def __str__(self) -> str:
        return f"{self.text}\n{''.join(map(str, self.signatures))}"


class Checkpoint(NamedTuple):
    """A checkpoint's text, which is signed: whose tree, its number of leaves, and its root."""

    origin: str
    size: int
    root: bytes

    def __str__(self) -> str:
        return f"{self.origin}\n{self.size}\n{b64encode(self.root).decode()}\n"


class Proof(NamedTuple):
    """The proof of an entry: its number (the first is 0), its inclusion proof, and the signed checkpoint."""

    entry: int
    path: Edge
    note: Note

    def __str__(self) -> str:
        return f"{PROOF}\nindex {self.entry}\n{_lines(self.path)}\n{self.note}"


def witness_request(old: int, consistency: Iterable[bytes], note: Note) -> str:
    """The body of the request `add-checkpoint`, which asks a witness for its cosignature.

    Args:
        old: the size of the tree that the witness saw last; 0: it saw none.
        consistency: the proof that the checkpoint's tree begins with that one.
        note: the signed checkpoint.
    """
    return f"old {old}\n{_lines(consistency)}\n{note}"


def _lines(hashes: Iterable[bytes]) -> str:
    return "".join(f"{b64encode(each).decode()}\n" for each in hashes)


def parsed_note(content: str) -> Note:
    """A signed note from its text. Raises `ValueError`."""
    text, blank, signatures = content.rpartition("\n\n")
    if len(content) > LONGEST or CONTROL.search(content) or not blank or not signatures.endswith("\n"):
        raise ValueError("no signed note: expected a text, an empty line, and signature lines")
    return Note(f"{text}\n", tuple(map(_signature, signatures.removesuffix("\n").split("\n"))))


def _signature(line: str) -> NoteSignature:
    found = SIGNATURE.fullmatch(line)
    signature = _bytes(found[2]) if found else b""
    if found is None or len(signature) <= 4:
        raise ValueError(f"no signature line: {line[:80]!r}")
    return NoteSignature(found[1], signature[:4], signature[4:])


def parsed_checkpoint(text: str) -> Checkpoint:
    """A checkpoint from a note's text. It has no extension lines: ours never have. Raises `ValueError`."""
    lines = text.removesuffix("\n").split("\n")
    if len(lines) != 3 or not lines[0] or not DECIMAL.fullmatch(lines[1]):
        raise ValueError("no checkpoint: expected the three lines origin, size and root")
    return Checkpoint(lines[0], int(lines[1]), _hash(lines[2]))


def parsed_proof(content: str) -> Proof:
    """The proof of an entry from its text. Raises `ValueError`."""
    head, blank, note = content.partition("\n\n")
    lines: Sequence[str] = head.split("\n")
    if not blank or len(lines) < 2 or lines[0] != PROOF or not lines[1].startswith("index "):
        raise ValueError(f"no proof: expected {PROOF}, an index, hashes, an empty line, and a checkpoint")
    index = lines[1].removeprefix("index ")
    if not DECIMAL.fullmatch(index):
        raise ValueError(f"no proof: {index[:80]!r} is no index")
    return Proof(int(index), tuple(map(_hash, lines[2:])), parsed_note(note))


def _hash(line: str) -> bytes:
    found = _bytes(line)
    if len(found) != HASH_BYTES:
        raise ValueError(f"no SHA-256 in base64: {line[:80]!r}")
    return found


def _bytes(text: str) -> bytes:
    found = b64decode(text, validate=True)
    if b64encode(found).decode() != text:
        raise ValueError("base64 in another form than the usual one")
    return found
