"""A checkpoint says what was signed, or it says in one line why it is none."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from hypothesis import given
from hypothesis import strategies as st

from wharfinger.domain.value import canonical
from wharfinger.history.checkpoint import (
    VERSION,
    Checkpoint,
    CheckpointError,
    SnapshotMark,
    StreamMark,
    fingerprint,
    marks,
    plane_id,
    private_key,
    private_pem,
    public_key,
    public_pem,
    read,
    signed,
)
from wharfinger.kernel.round import Head

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
OTHER = Ed25519PrivateKey.from_private_bytes(bytes(32))
CHECKPOINT = Checkpoint(
    VERSION,
    plane_id(b"first"),
    1_795_250_342_411_936,
    (
        StreamMark("cluster/oslo", 2, 5, "ab" * 32, 17),
        StreamMark(
            "fleet/0",
            9,
            40,
            "cd" * 32,
            18,
            (SnapshotMark(3, "01" * 32), SnapshotMark(6, "02" * 32)),
        ),
    ),
)
FILE = signed(CHECKPOINT, KEY)


def test_what_was_signed_is_read() -> None:
    found = read("f", FILE, KEY.public_key())
    assert found.checkpoint == CHECKPOINT
    assert found.fingerprint == fingerprint(KEY.public_key())
    assert read("f", FILE).fingerprint == found.fingerprint  # whoever it was
    assert found.checkpoint.heads()["fleet/0"] == Head("fleet/0", 9, 40, b"\xcd" * 32, 0, 18)


def test_the_same_checkpoint_is_the_same_file() -> None:
    assert signed(CHECKPOINT, KEY) == FILE
    assert FILE.endswith(b"}\n")
    assert FILE.count(b"\n") == 1


def test_the_format_is_frozen() -> None:
    """A file that was signed once must be readable forever: this is one, byte for byte."""
    assert FILE.decode() == (
        '{"checkpoint":{"version":1,'
        '"plane":"da0acd4e921b15c36072b03f9dec911631a806cf2339caa398c7f20503fdcc20",'
        '"made_at_us":1795250342411936,"streams":['
        f'{{"stream":"cluster/oslo","round":2,"seq":5,"hash":"{"ab" * 32}","at_us":17}},'
        f'{{"stream":"fleet/0","round":9,"seq":40,"hash":"{"cd" * 32}","at_us":18,"snapshots":'
        f'[{{"round":3,"digest":"{"01" * 32}"}},{{"round":6,"digest":"{"02" * 32}"}}]}}]}},'
        '"public_key":"A6EHv/POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg=",'
        '"signature":"cRxjxo/A/nZIRrcvZNvgyW48CPfdOYtl2Ss1tpc7dY92B70hLolNyEgjuOfghuYNHs6Zx7XqLN1ucJkvSbVJCw=="}\n'
    )


def test_heads_and_snapshots_become_marks_in_order_of_name() -> None:
    heads = [Head("b", 2, 5, b"\xab" * 32, 7, 17), Head("a", 0, 0, b"\x01" * 32, 0)]
    made = marks(heads, [("b", 6, b"\x02" * 32), ("b", 3, b"\x03" * 32), ("z", 1, b"\x04" * 32)])
    assert [mark.stream for mark in made] == ["a", "b"]
    assert [one.round for one in made[1].snapshots] == [3, 6]
    assert made[0].snapshots == ()


@given(place=st.integers(0, len(FILE) - 2), flip=st.integers(1, 255))
def test_no_byte_of_it_can_be_changed(place: int, flip: int) -> None:
    """Whatever is flipped: one line. Only what changes no meaning of the signed bytes' frame may
    pass, and says the same."""
    changed = bytearray(FILE)
    changed[place] ^= flip
    said = _said_of(bytes(changed))
    assert said == "" or (said.startswith("f: ") and "\n" not in said)


def _said_of(body: bytes) -> str:
    """Why it is refused; nothing when it still says what was signed."""
    try:
        assert read("f", body, KEY.public_key()).checkpoint == CHECKPOINT
    except CheckpointError as error:
        return str(error)
    return ""


@given(size=st.integers(0, len(FILE) - 2))
def test_no_byte_of_it_can_be_missing(size: int) -> None:
    with pytest.raises(CheckpointError, match=r"^f: "):
        read("f", FILE[:size])


def test_the_bytes_of_the_checkpoint_itself_are_held_by_the_signature() -> None:
    for place in range(FILE.index(b"version"), FILE.index(b',"public_key"')):
        changed = bytearray(FILE)
        changed[place] ^= 1
        with pytest.raises(CheckpointError):
            read("f", bytes(changed))


def _with(**fields: object) -> Callable[[], bytes]:
    return lambda: json.dumps({**json.loads(FILE), **fields}, separators=(",", ":")).encode()


def _resigned(**fields: object) -> Callable[[], bytes]:
    """By somebody with the key: the signature is right, what is signed is not."""

    def make() -> bytes:
        body = json.dumps(
            {**json.loads(FILE)["checkpoint"], **fields}, separators=(",", ":")
        ).encode()
        parts = {
            "checkpoint": msgspec.Raw(body),
            "public_key": KEY.public_key().public_bytes_raw(),
            "signature": KEY.sign(b"wharfinger checkpoint\x00" + body),
        }
        return canonical(parts)

    return make


STREAM = json.loads(FILE)["checkpoint"]["streams"][0]


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: b"", "f: expected a checkpoint: "),
        (lambda: b"\xff\xfe", "f: expected a checkpoint: "),
        (lambda: b"[1]", "f: expected a checkpoint: "),
        (lambda: b"{}", "f: expected a checkpoint: "),
        (_with(more=1), "f: expected a checkpoint: "),
        (_with(checkpoint=[1]), "f: expected a checkpoint: "),
        (_with(public_key="AAAA"), "f: public key: "),
        (_with(signature="AAAA"), "f: the signature does not fit"),
        (_resigned(version=3), "f: a checkpoint of version 3; this program reads versions 1 and 2"),
        (_resigned(more=1), "f: expected a checkpoint of version 1: "),
        (_resigned(plane="x"), "f: expected a checkpoint of version 1: "),
        (_resigned(streams=[{**STREAM, "round": -1}]), "f: expected a checkpoint of version 1: "),
        (_resigned(streams=[STREAM, STREAM]), "f: expected every stream once, in order of name"),
    ],
)
def test_what_is_no_checkpoint_is_refused_in_one_line(make: Callable[[], bytes], said: str) -> None:
    with pytest.raises(CheckpointError) as refused:
        read("f", make())
    assert str(refused.value).startswith(said)
    assert "\n" not in str(refused.value)


def test_another_signer_is_refused_by_name() -> None:
    with pytest.raises(CheckpointError) as refused:
        read("f", signed(CHECKPOINT, OTHER), KEY.public_key())
    assert fingerprint(OTHER.public_key()) in str(refused.value)
    assert fingerprint(KEY.public_key()) in str(refused.value)


def test_a_signature_of_another_checkpoint_does_not_fit() -> None:
    other = json.loads(signed(msgspec.structs.replace(CHECKPOINT, made_at_us=1), KEY))
    with pytest.raises(CheckpointError, match="the signature does not fit"):
        read("f", _with(signature=other["signature"])())


def test_a_signature_for_another_purpose_does_not_fit() -> None:
    body = canonical(CHECKPOINT)
    with pytest.raises(CheckpointError, match="the signature does not fit"):
        read("f", _with(signature=base64.b64encode(KEY.sign(body)).decode())())


def test_a_plane_is_known_by_the_first_round_of_its_intake() -> None:
    assert plane_id(b"one") != plane_id(b"two")
    assert plane_id(b"one") == plane_id(b"one")


def test_keys_are_written_and_read() -> None:
    assert private_key("k", private_pem(KEY)).private_bytes_raw() == KEY.private_bytes_raw()
    assert fingerprint(public_key("k", public_pem(KEY.public_key()))) == fingerprint(
        KEY.public_key()
    )
    assert fingerprint(KEY.public_key()) == "SHA256:Vkdap1RjR0wChd9dvyvKtz2mUTWIOem3dIGy6rEHcIw"


@pytest.mark.parametrize(
    ("pem", "said"),
    [
        (b"", "k: expected an Ed25519 private key in PEM"),
        (public_pem(KEY.public_key()), "k: expected an Ed25519 private key in PEM"),
        (
            KEY.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"x")),
            "k: expected a private key without a password",
        ),
        (
            X25519PrivateKey.generate().private_bytes(
                Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
            ),
            "k: expected an Ed25519 private key, got another kind",
        ),
    ],
)
def test_what_is_no_private_key_is_refused_in_one_line(pem: bytes, said: str) -> None:
    with pytest.raises(CheckpointError) as refused:
        private_key("k", pem)
    assert str(refused.value).startswith(said)


@pytest.mark.parametrize(
    ("pem", "said"),
    [
        (b"no", "k: expected an Ed25519 public key in PEM"),
        (private_pem(KEY), "k: expected an Ed25519 public key in PEM"),
        (
            X25519PrivateKey.generate()
            .public_key()
            .public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo),
            "k: expected an Ed25519 public key, got another kind",
        ),
    ],
)
def test_what_is_no_public_key_is_refused_in_one_line(pem: bytes, said: str) -> None:
    with pytest.raises(CheckpointError) as refused:
        public_key("k", pem)
    assert str(refused.value).startswith(said)
