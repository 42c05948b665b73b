"""Checkpoints of the tree of anchors, in C2SP's forms: the values are those that other implementations publish."""

from base64 import b64decode
from hashlib import sha256

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from interlock.workers.audit import signed_checkpoints, signing_keys
from interlock.workers.audit.signed_checkpoints import proof_of
from interlock.workflows.audit import merkle
from interlock.workflows.audit.checkpoints import (
    Note,
    Proof,
    parsed_checkpoint,
    parsed_note,
    parsed_proof,
    witness_request,
)

# The note and the key of the documentation of Go's golang.org/x/mod/sumdb/note, where the form comes from.
NAME, SEED = "PeterNeumann", b64decode("AYEKFALVFGyNhPJEMzD1QIDr+Y7hfZx09iUvxdXHKDFz")[1:]
VERIFIER_KEY = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW"
TEXT = "If you think cryptography is the answer to your problem,\nthen you don't know what your problem is.\n"
NOTE = f"""{TEXT}
— PeterNeumann x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM=
"""
# The example of c2sp.org/tlog-cosignature: a checkpoint that a witness has cosigned.
COSIGNED = """example.com/behind-the-sofa
20852163
CsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=

— example.com/behind-the-sofa Az3grlgtzPICa5OS8npVmf1Myq/5IZniMp+ZJurmRDeOoRDe4URYN7u5/Zhcyv2q1gGzGku9nTo+zyWE+xeMcTOAYQ8=
— witness.example.com/w1 jWbPPwAAAABkGFDLEZMHwSRaJNiIDoe9DYn/zXcrtPHeolMI5OWXEhZCB9dlrDJsX3b2oyin1nPZqhf5nNo0xUe+mbIUBkBIfZ+qnA==
"""  # noqa: E501
# The tree of Certificate Transparency's test data (github.com/transparency-dev/merkle, testonly): entries, and the
# roots of its first one, two, … eight entries.
ENTRIES = list(
    map(bytes.fromhex, ("", "00", "10", "2021", "3031", "40414243", "5051525354555657", bytes(range(0x60, 0x70)).hex()))
)
ROOTS = (
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
)
CONSISTENT = {
    (1, 1): (),
    (1, 8): (
        "96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7",
        "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
        "6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4",
    ),
    (6, 8): (
        "0ebc5d3437fbe2db158b9f126a1d118e308181031d0a949f8dededebc558ef6a",
        "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0",
        "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    ),
    (2, 5): (
        "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
        "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b",
    ),
}


def edges(entries: list[bytes]) -> list[merkle.Edge]:
    """The edges of the trees of no, one, two … entries."""
    found = [merkle.EMPTY]
    for size, entry in enumerate(entries):
        found.append(merkle.appended(found[-1], size, merkle.leaf_hash(entry)))
    return found


def hashed(entries: list[bytes]) -> bytes:
    """The root, computed as RFC 6962 defines it, by recursion over the entries."""
    if len(entries) == 1:
        return sha256(b"\0" + entries[0]).digest()
    split = 1
    while split * 2 < len(entries):
        split *= 2
    return sha256(b"\1" + hashed(entries[:split]) + hashed(entries[split:])).digest()


def test_keys_and_signatures_are_those_of_the_reference_implementation() -> None:
    key = Ed25519PrivateKey.from_private_bytes(SEED)
    signer = signing_keys.Signer(key, NAME)
    assert signed_checkpoints.verifier_key(NAME, key.public_key()) == VERIFIER_KEY
    note = Note(TEXT, (signed_checkpoints.signature(NAME, signer, TEXT),))
    assert str(note) == NOTE
    assert parsed_note(NOTE) == note
    assert signed_checkpoints.is_signed(note, NAME, key.public_key())
    assert not signed_checkpoints.is_signed(note._replace(text=TEXT + "more\n"), NAME, key.public_key())
    assert not signed_checkpoints.is_signed(note, "another", key.public_key())


def test_the_specifications_example_is_read_and_written_alike() -> None:
    note = parsed_note(COSIGNED)
    assert str(note) == COSIGNED
    assert [each.name for each in note.signatures] == ["example.com/behind-the-sofa", "witness.example.com/w1"]
    assert [len(each.signature) for each in note.signatures] == [64, 72]
    checkpoint = parsed_checkpoint(note.text)
    assert (checkpoint.origin, checkpoint.size) == ("example.com/behind-the-sofa", 20852163)
    assert str(checkpoint) == note.text


def test_roots_and_proofs_are_those_of_certificate_transparency() -> None:
    assert [merkle.root(each).hex() for each in edges(ENTRIES)[1:]] == list(ROOTS)
    leaves = [merkle.leaf_hash(each) for each in ENTRIES]
    for (old, new), expected in CONSISTENT.items():
        assert [each.hex() for each in merkle.consistency(leaves[:new], old)] == list(expected)
    assert merkle.consistency(leaves, 0) == []


@given(st.lists(st.binary(max_size=4), min_size=1, max_size=70))
def test_the_edge_before_an_entry_is_its_inclusion_proof(entries: list[bytes]) -> None:
    *before, last = edges(entries)
    path = before[-1]
    assert merkle.is_last(len(entries), path)
    assert merkle.root(last) == merkle.root((merkle.leaf_hash(entries[-1]), *path)) == hashed(entries)
    assert not merkle.is_last(len(entries), (*path, b""))


KEY = Ed25519PrivateKey.from_private_bytes(b"\1" * 32)
SIGNER = signing_keys.Signer(KEY, signing_keys.fingerprint(KEY.public_key()))
TRUSTED = {SIGNER.name: KEY.public_key()}


def proof(record: str, *before: str) -> Proof:
    path = edges([each.encode() for each in before])[-1]
    root = merkle.root((merkle.leaf_hash(record.encode()), *path))
    return Proof(len(before), path, signed_checkpoints.signed(SIGNER, len(before) + 1, root))


def test_a_record_is_proven_by_its_checkpoint_alone() -> None:
    for before in ((), ("a",), ("a", "b", "c")):
        assert proof_of("d", str(proof("d", *before)), TRUSTED) == (proof("d", *before), ())


def test_a_witnesss_line_is_kept_and_passed_over() -> None:
    found = proof("c", "a")
    cosigned = found._replace(note=found.note._replace(signatures=(*found.note.signatures, *parsed_note(COSIGNED)[1])))
    assert parsed_proof(str(cosigned)) == cosigned
    assert proof_of("c", str(cosigned), TRUSTED) == (cosigned, ())


@pytest.mark.parametrize(
    ("record", "changed", "message"),
    [
        ("x", proof("c", "a", "b"), "changed: its record is not the last entry"),
        ("c", proof("c", "a", "b")._replace(entry=1), "changed: its record is not the last entry"),
        ("c", proof("c", "a", "b")._replace(path=()), "changed: its record is not the last entry"),
        ("c", proof("c", "a")._replace(note=proof("c", "b").note), "changed: its record is not the last entry"),
        (
            "c",
            proof("c", "a")._replace(note=proof("c", "a").note._replace(signatures=proof("c", "b").note.signatures)),
            "changed: its signature is not",
        ),
        (
            "c",
            proof("c", "a")._replace(note=parsed_note(COSIGNED)),
            "signed by the key example.com/behind-the-sofa, wh",
        ),
    ],
)
def test_what_was_changed_proves_nothing(record: str, changed: Proof, message: str) -> None:
    _, faults = proof_of(record, str(changed), TRUSTED)
    assert any(each.startswith(message) for each in faults), faults


def test_a_note_without_its_keys_signature_is_not_signed() -> None:
    found = proof("c")
    unsigned = found._replace(note=parsed_note(str(found.note).replace(SIGNER.name + " ", "0123456789abcdef ", 1)))
    _, faults = proof_of("c", str(unsigned), TRUSTED)
    assert faults == ("changed: its signature is not that of its content",)


@pytest.mark.parametrize(
    "junk",
    [
        "",
        "\n\n",
        "c2sp.org/tlog-proof@v1",
        str(proof("c")).replace("index 0", "index 00"),
        str(proof("c")).replace("index 0", "index -1"),
        str(proof("c")).replace("index 0", "index 0\nAAAA"),
        str(proof("c")).replace("\n1\n", "\n01\n"),
        str(proof("c")).replace("\n1\n", f"\n{10**30}\n"),
        str(proof("c")).replace("\n1\n", "\n1\nmore\n"),
        str(proof("c")).replace("— ", "- "),
        str(proof("c")).removesuffix("\n"),
        str(proof("c")) + "\n",
        str(proof("c")).replace("— ", "\t— "),
        str(proof("c")).replace("=\n", "\n"),
        str(proof("c")) + "x" * 70_000,
    ],
)
def test_what_is_no_proof_is_damaged(junk: str) -> None:
    found, faults = proof_of("c", junk, TRUSTED)
    assert found is None
    assert [each.split(":")[0] for each in faults] == ["damaged"]


def test_a_witness_is_asked_in_the_form_of_its_protocol() -> None:
    note = proof("c", "a", "b").note
    body = witness_request(2, merkle.consistency([merkle.leaf_hash(each) for each in (b"a", b"b", b"c")], 2), note)
    old, *hashes, blank = [*body.partition("\n\n")[0].split("\n"), ""]
    assert (old, len(hashes), blank) == ("old 2", 1, "")
    assert parsed_note(body.partition("\n\n")[2]) == note
