"""Signed envelopes in the form of DSSE v1.0.2, which in-toto's and sigstore's tools verify.

https://github.com/secure-systems-lab/dsse/blob/v1.0.2/protocol.md and envelope.md. Making and opening one takes the
twenty lines below, so the library that tests check them with is not required at run time.
"""

import base64
import binascii
from collections.abc import Mapping

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from interlock.workers.audit import signing_keys
from interlock.workers.audit.signing_keys import Signer
from interlock.workflows.errors import Refused
from interlock.workflows.output.schema_messages import schema_message


class NotAnEnvelope(Refused):
    """The text is not a DSSE envelope of the expected type; the message says why."""


class Signature(BaseModel):
    """A signature in base64, and the fingerprint of the key."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    keyid: str
    sig: str


class Envelope(BaseModel):
    """A payload in base64 and who signed it. Others may add signatures."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    payload: str
    payload_type: str = Field(alias="payloadType")
    signatures: tuple[Signature, ...] = Field(min_length=1)

    def text(self) -> str:
        """The envelope as JSON in one line, always the same for the same envelope."""
        return self.model_dump_json(by_alias=True)


def sealed(payload: bytes, payload_type: str, signer: Signer) -> Envelope:
    """A payload, signed."""
    signature = Signature(keyid=signer.name, sig=_text(signer.sign(_encoded(payload_type, payload))))
    return Envelope(payload=_text(payload), payload_type=payload_type, signatures=(signature,))


def parsed(text: str | bytes, payload_type: str) -> Envelope:
    """An envelope from its JSON. Raises `NotAnEnvelope`."""
    try:
        envelope = Envelope.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        where = "".join(f"{each}: " for each in (".".join(map(str, first["loc"])),) if each)
        raise NotAnEnvelope(f"not a DSSE envelope: {where}{schema_message(first)}") from error
    if envelope.payload_type != payload_type:
        raise NotAnEnvelope(f"its payload has the type {envelope.payload_type[:80]!r}; expected {payload_type}")
    return envelope


def payload_of(envelope: Envelope) -> bytes:
    """The payload, whoever signed it. Raises `NotAnEnvelope` if it is not base64 in its one form."""
    return _bytes(envelope.payload)


def faults(envelope: Envelope, keys: Mapping[str, Ed25519PublicKey]) -> tuple[str, ...]:
    """Why an envelope must not be believed, one sentence each; empty: a trusted key signed it, and no such signature
    is wrong. Signatures of other keys are passed over."""
    signed = _encoded(envelope.payload_type, payload_of(envelope))
    found = [
        (each.keyid, signing_keys.signed(keys, each.keyid, signed, _bytes(each.sig))) for each in envelope.signatures
    ]
    if wrong := [name for name, answer in found if answer is False]:
        return tuple(f"changed: the signature of the key {name} is not that of its content" for name in wrong)
    if not any(answer for _, answer in found):
        names = ", ".join(name[:80] for name, _ in found)
        return (f"signed by the key {names}, which is not trusted: if it is yours, give --trust FILE",)
    return ()


def _encoded(payload_type: str, payload: bytes) -> bytes:
    """DSSE's pre-authentication encoding, PAE: what is signed."""
    type_ = payload_type.encode()
    return b"DSSEv1 %d %s %d %s" % (len(type_), type_, len(payload), payload)


def _text(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _bytes(text: str) -> bytes:
    try:
        value = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise NotAnEnvelope(f"not a DSSE envelope: not base64: {error}") from error
    if _text(value) != text:
        raise NotAnEnvelope("not a DSSE envelope: its base64 is not canonical")
    return value
