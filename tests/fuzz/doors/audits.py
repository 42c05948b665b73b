"""What `audit verify` looks at beside history: anchors on file, keys, exports and the journal, whoever wrote them."""

import gzip
import shutil
from hashlib import sha256
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import strategies as st
from uuid_utils.compat import uuid7

from interlock.db.audit.verify import Verdict
from interlock.workers.audit import (
    anchor_checks,
    anchors,
    export_checks,
    exports,
    journal_checks,
    signed_checkpoints,
    signing_keys,
)
from interlock.workers.audit.evidence import EVER
from interlock.workers.client.client import Client
from interlock.workers.relay import journal
from interlock.workflows.audit import checkpoints, merkle
from tests.fuzz.door import Door, Ground, Target, joined, overwrite
from tests.fuzz.doors.logs import WRITTEN, events
from tests.fuzz.shapes import documents, written

KEY = Ed25519PrivateKey.from_private_bytes(b"\1" * 32)  # of somebody who is believed, and says what he likes
NAME = signing_keys.fingerprint(KEY.public_key())
PEM = KEY.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
HEADS = b"00000000-0000-0000-0000-000000000008 1 " + b"00" * 32 + b"\n"
ANCHOR = {
    "number": 1,
    "made_at": "2026-01-01T00:00:00.000000Z",
    "heads": 1,
    "heads_sha256": sha256(HEADS).hexdigest(),
    "instances": 1,
    "transitions": 1,
    "schema_sha256": "00" * 32,
    "export": None,
}
EXPORT = {"number": 1, "previous": exports.FIRST, "key": NAME, "files": [], "made_at": "2026-01-01T00:00:00Z"}
KINDS = ("anchor", "heads", "packed", "proof", "key", "export", "journal")


def _opened(ground: Ground) -> Target:
    client = Client(ground.runtime)
    client.create("story", f"S-{uuid7()}", project=uuid7())
    place, database = ground.directory, ground.runtime.database

    def verify(data: bytes) -> None:
        kind, _, content = data.partition(b"\xff")
        for each in place.iterdir():
            shutil.rmtree(each)
        verdict = Verdict()
        name = kind.decode(errors="replace")
        believed = signing_keys.trusted_keys(
            overwrite(place / "keys" / "a.pub", content if name == "key" else PEM).parent
        )
        if name == "export":
            overwrite(place / "exports" / "export-000001.x" / exports.MANIFEST, content)
            list(export_checks._sealed(verdict, 1, place / "exports" / "export-000001.x" / exports.MANIFEST, believed))
        elif name == "journal":
            overwrite(place / "state" / journal.ACTIVE, content)
            journal_checks.check(database, verdict, place / "state", since=EVER)
        else:
            _anchor(place / "anchors", name, content)
            anchor_checks.check_files(database, verdict, anchors.filed(place / "anchors"), believed, {})
        for problem in verdict.problems:
            str(problem)

    return verify


def _anchor(place: Path, name: str, content: bytes) -> None:
    heads = gzip.compress(content if name == "heads" else HEADS, mtime=0)
    body = content if name == "anchor" else written(ANCHOR)
    if name == "heads":
        body = written(ANCHOR | {"heads_sha256": sha256(content).hexdigest()})
    overwrite(place / "anchor-000001.json", body)
    overwrite(place / "anchor-000001.tlog-proof", content if name == "proof" else _proof(body))
    overwrite(place / "anchor-000001.heads.gz", content if name == "packed" else heads)


def _proof(record: bytes) -> bytes:
    note = signed_checkpoints.signed(signing_keys.Signer(KEY, NAME), 1, merkle.leaf_hash(record))
    return str(checkpoints.Proof(0, (), note)).encode()


HEAD = st.builds(
    "{} {} {}\n".format,
    st.uuids() | st.text(max_size=5),
    st.integers() | st.text(max_size=3),
    st.binary(max_size=40).map(bytes.hex) | st.text(max_size=5),
).map(lambda text: text.encode(errors="surrogatepass"))
LINES = _proof(written(ANCHOR)).decode().split("\n")
PROOFS = st.lists(st.sampled_from(LINES) | st.text(max_size=50), max_size=12).map(
    lambda lines: "\n".join(lines).encode(errors="surrogatepass")
)
CONTENT = {
    "anchor": documents(ANCHOR),
    "heads": st.lists(HEAD, max_size=4).map(b"".join),
    "packed": st.binary(max_size=60) | st.binary(max_size=20).map(lambda inner: gzip.compress(inner, mtime=0)[:-3]),
    "proof": st.binary(max_size=70) | PROOFS,
    "key": st.sampled_from((PEM, PEM[:50], PEM.replace(b"PUBLIC", b"PRIVATE"))) | st.binary(max_size=60),
    "export": documents(EXPORT),
    "journal": WRITTEN,
}

AUDITS = Door(
    "audits",
    "With any files in the places of anchors, keys, exports and the journal, `audit verify` reaches a verdict.",
    _opened,
    st.sampled_from(KINDS).flatmap(lambda kind: CONTENT[kind].map(lambda content: joined(kind, content))),
    (
        joined("anchor", written(ANCHOR)),
        joined("heads", HEADS),
        joined("proof", _proof(written(ANCHOR))),
        joined("journal", b"".join(written(each) + b"\n" for each in events())),
        joined("key", PEM),
        joined("export", written(EXPORT)),
    ),
    examples=36,
    on_database=True,
)
