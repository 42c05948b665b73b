"""The key that signs anchors and exports (Ed25519), and the public keys that are trusted.

`anchor.key` signs; every `*.pub` beside it is trusted. Users with write access to the database must have none there.
"""

import os
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from interlock.workers.system import write_once
from interlock.workflows.errors import InterlockError

SIGNING = "anchor.key"


class KeyFault(InterlockError):
    """The signing key cannot be used, or is missing though it existed before. Put it back, or make a new one."""


class Signer(NamedTuple):
    """The private key, and the fingerprint of its public key."""

    key: Ed25519PrivateKey
    name: str

    def sign(self, body: bytes) -> bytes:
        """The signature, 64 bytes."""
        return self.key.sign(body)


def raw(key: Ed25519PublicKey) -> bytes:
    """A public key as RFC 8032 encodes it, 32 bytes."""
    return key.public_bytes(Encoding.Raw, PublicFormat.Raw)


def fingerprint(key: Ed25519PublicKey) -> str:
    """The first 16 hex digits of the SHA-256 of the raw public key."""
    return sha256(raw(key)).hexdigest()[:16]


def signer(directory: Path, *, may_make: bool) -> Signer:
    """The signing key. If it is missing and `may_make`, it is made, with its public key beside it.

    Raises:
        KeyFault: it is missing, or cannot be read.
    """
    path = directory / SIGNING
    if not path.exists():
        if not may_make:
            raise KeyFault(
                f"the signing key {path} is missing. Put it back, or make a new one with `interlock audit key --new`:"
                " the old public key beside it is still trusted. Where nothing has been anchored yet, the first"
                " `interlock audit anchor` makes it"
            )
        make(directory)
    try:
        key = load_pem_private_key(path.read_bytes(), password=None)
    except (OSError, ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise KeyFault(f"the signing key {path} cannot be read: {error}") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise KeyFault(f"the signing key {path} is not an Ed25519 key; `openssl genpkey -algorithm ed25519` makes one")
    return Signer(key, _published(directory, key.public_key()))


def make(directory: Path) -> str:
    """Make a signing key. Returns its fingerprint. Raises `KeyFault` if there is a key already."""
    directory.mkdir(parents=True, exist_ok=True)
    key = Ed25519PrivateKey.generate()
    draft = directory / f".{SIGNING}.{os.getpid()}"
    draft.unlink(missing_ok=True)
    try:
        write_once.create(draft, 0o600, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        os.link(draft, directory / SIGNING)  # atomic, and never replaces another key
    except FileExistsError:
        raise KeyFault(
            f"{directory / SIGNING} exists already and is not overwritten; move it elsewhere first"
        ) from None
    finally:
        draft.unlink(missing_ok=True)
    return _published(directory, key.public_key())


def _published(directory: Path, key: Ed25519PublicKey) -> str:
    name = fingerprint(key)
    path = directory / f"{name}.pub"
    if not path.exists():
        draft = directory / f".{path.name}.{os.getpid()}"
        draft.unlink(missing_ok=True)
        write_once.create(draft, 0o644, key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
        draft.rename(path)
    return name


def trusted_keys(*places: Path) -> dict[str, Ed25519PublicKey]:
    """Fingerprint -> public key, of every PEM file given and every `*.pub` in a directory given.

    Raises:
        KeyFault: a file is not an Ed25519 public key.
    """
    found: dict[str, Ed25519PublicKey] = {}
    for place in places:
        for path in sorted(place.glob("*.pub")) if place.is_dir() else [place] if place.exists() else []:
            try:
                key = load_pem_public_key(path.read_bytes())
            except (OSError, ValueError, UnsupportedAlgorithm) as error:
                raise KeyFault(f"{path} cannot be read as a public key: {error}") from error
            if not isinstance(key, Ed25519PublicKey):
                raise KeyFault(f"{path} is not an Ed25519 public key")
            found[fingerprint(key)] = key
    return found


def signed(keys: Mapping[str, Ed25519PublicKey], name: str, body: bytes, signature: bytes) -> bool | None:
    """Whether the key of that fingerprint signed `body`; None if that key is not trusted."""
    if name not in keys:
        return None
    try:
        keys[name].verify(signature, body)
    except InvalidSignature:
        return False
    return True
