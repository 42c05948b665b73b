"""Signs checkpoints of the tree of anchors, and checks who signed one, in the form of C2SP's signed notes (Ed25519).

The origin is the signing key's name, so a new key begins a new log for witnesses: after a restored backup, whose tree
may differ from one that was signed before, no key ever signs two trees of the same size.
"""

from base64 import b64encode
from collections.abc import Iterator, Mapping
from hashlib import sha256

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from interlock.workers.audit.signing_keys import Signer, raw
from interlock.workflows.audit import merkle
from interlock.workflows.audit.checkpoints import (
    Checkpoint,
    Note,
    NoteSignature,
    Proof,
    parsed_checkpoint,
    parsed_proof,
)

PREFIX = "interlock/"  # of a key's name: the rest is its fingerprint
ED25519 = b"\1"

TrustedKeys = Mapping[str, Ed25519PublicKey]


def signed(signer: Signer, size: int, root: bytes) -> Note:
    """A signed checkpoint."""
    text = str(Checkpoint(PREFIX + signer.name, size, root))
    return Note(text, (signature(PREFIX + signer.name, signer, text),))


def signature(name: str, signer: Signer, text: str) -> NoteSignature:
    """A signature line of a note."""
    return NoteSignature(name, key_id(name, signer.key.public_key()), signer.sign(text.encode()))


def key_id(name: str, key: Ed25519PublicKey) -> bytes:
    """The id of a key in signature lines, 4 bytes."""
    return sha256(name.encode() + b"\n" + ED25519 + raw(key)).digest()[:4]


def verifier_key(name: str, key: Ed25519PublicKey) -> str:
    """A public key as other tools take it: `NAME+ID+KEY`."""
    return f"{name}+{key_id(name, key).hex()}+{b64encode(ED25519 + raw(key)).decode()}"


def proof_of(record: str, proof: str, keys: TrustedKeys) -> tuple[Proof | None, tuple[str, ...]]:
    """Check that a record is the last entry of the tree that its proof's checkpoint signs.

    Args:
        record: the entry.
        proof: its proof, with the checkpoint.
        keys: the trusted keys: fingerprint -> public key.

    Returns:
        The proof (None: it is none), and what is wrong with it, a sentence each.
    """
    try:
        found = parsed_proof(proof)
        signed = parsed_checkpoint(found.note.text)
    except ValueError as error:
        return None, (f"damaged: {error}",)
    return found, tuple(_faults(merkle.leaf_hash(record.encode()), found, signed, keys))


def _faults(leaf: bytes, found: Proof, signed: Checkpoint, keys: TrustedKeys) -> Iterator[str]:
    name = signed.origin.removeprefix(PREFIX)
    if name not in keys or not signed.origin.startswith(PREFIX):
        yield f"signed by the key {name}, which is not trusted: if it is yours, put its public key beside the others"
    elif not is_signed(found.note, signed.origin, keys[name]):
        yield "changed: its signature is not that of its content"
    last = signed.size == found.entry + 1 and merkle.is_last(signed.size, found.path)
    if not last or merkle.root((leaf, *found.path)) != signed.root:
        yield "changed: its record is not the last entry of the tree that was signed"


def is_signed(note: Note, name: str, key: Ed25519PublicKey) -> bool:
    """Whether a key signed a note. Other signatures, such as those of witnesses, are passed over."""
    known = [each.signature for each in note.signatures if (each.name, each.key_id) == (name, key_id(name, key))]
    try:
        for each in known:
            key.verify(each, note.text.encode())
    except InvalidSignature:
        return False
    return bool(known)
