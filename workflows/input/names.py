"""Valid names, reasons and words. Every door and PostgreSQL (`interlock.is_name`) apply the same rule.

Names must be distinguishable by eye. A name therefore contains no invisible, control or text-direction characters and
no blank other than the ordinary space; it neither begins nor ends with a space; and it is in Unicode's composed form
(NFC). A reason is one line for people to read, and may contain joiners and the blanks of other scripts. Words are a
reason of one or more lines.
"""

import re
import unicodedata
from uuid import UUID

from interlock.workflows.errors import BadInput

DEFAULT_PROJECT = "default"

NAME_LIMIT, REQUEST_ID_LIMIT, REASON_LIMIT, WORDS_LIMIT = 100, 200, 2_000, 10_000  # characters

OWN_IDS = "interlock:"  # begins the request_ids of Interlock's own triggers, and no caller's

STEERING = (  # control characters: a terminal, a log or a reader obeys them instead of showing them
    (0x00, 0x1F), (0x7F, 0x9F), (0x061C, 0x061C), (0x200E, 0x200F), (0x2028, 0x202E), (0x2066, 0x2069),
)  # fmt: skip
HIDDEN = (  # invisible: fillers, zero widths, tags (which can encode whole texts), and noncharacters
    (0x00AD, 0x00AD), (0x034F, 0x034F), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F), (0x200B, 0x200B),
    (0x2060, 0x2065), (0x206A, 0x206F), (0x3164, 0x3164), (0xFDD0, 0xFDEF), (0xFE00, 0xFE0E), (0xFEFF, 0xFEFF),
    (0xFFA0, 0xFFA0), (0xFFF0, 0xFFFB), (0xFFFE, 0xFFFF), (0x1BCA0, 0x1BCA3), (0x1D173, 0x1D17A), (0xE0000, 0xE0FFF),
)  # fmt: skip
SURROGATES = ((0xD800, 0xDFFF),)  # not storable in PostgreSQL's text
JOINING = ((0x200C, 0x200D), (0xFE0F, 0xFE0F))  # needed in Persian and emoji; not allowed in names
BLANK = (
    (0xA0, 0xA0), (0x1680, 0x1680), (0x2000, 0x200A), (0x202F, 0x202F), (0x205F, 0x205F), (0x2800, 0x2800),
    (0x3000, 0x3000),
)  # fmt: skip
BLANKS = " \n\t" + "".join(chr(each) for first, last in BLANK for each in range(first, last + 1))

Ranges = tuple[tuple[int, int], ...]


def _class(ranges: Ranges, without: str = "") -> str:
    points = "".join(f"\\U{first:08x}-\\U{last:08x}" for first, last in ranges)
    return f"(?![{without}])[{points}]" if without else f"[{points}]"


_REASON = STEERING + HIDDEN + SURROGATES
IN_NAMES = re.compile(_class(_REASON + JOINING + BLANK))
IN_REASONS = re.compile(_class(_REASON))
IN_WORDS = re.compile(_class(_REASON, without="\n\t"))
UUID_TEXT = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
UNKEPT = re.compile("[\x00\ud800-\udfff]")  # not storable in PostgreSQL's text


def name(what: str, value: object, limit: int = NAME_LIMIT) -> str:
    """Return `value` if it is a valid name.

    Args:
        what: its name for messages: "by", "entity id".
        value: the proposed name.
        limit: its maximum number of characters.

    Raises:
        BadInput: it is not valid; the message shows the character as U+XXXX and says what to do.
    """
    return _checked(what, value, limit, IN_NAMES)


def entity_id(value: object) -> str:
    """Return `value` if it is a valid entity id: a name that is not the text of a UUID, since a UUID in its place
    means the instance with that UUID. Raises like `name`.
    """
    found = name("entity id", value)
    if UUID_TEXT.fullmatch(found):
        raise BadInput(
            f"entity id {found} is a UUID, which always means the instance with that UUID. Choose another name"
        )
    return found


def request_id(value: object) -> str:
    """Return `value` if it is a valid request_id of a caller: a name that does not begin as Interlock's own do. Raises
    like `name`.
    """
    found = name("request_id", value, REQUEST_ID_LIMIT)
    if found.startswith(OWN_IDS):
        raise BadInput(f"request_id begins with {OWN_IDS!r}, which only Interlock's own triggers have. Choose another")
    return found


def project(value: object, what: str = "project") -> str:
    """Return the name of a project: a name, or a UUID, whose text is in lower case. Raises like `name`."""
    if isinstance(value, UUID):
        return str(value)
    found = name(what, value)
    return found.lower() if UUID_TEXT.fullmatch(found) else found


def project_or(value: object, usual: object) -> str:
    """Return the name of a project; None means the usual one, such as that of a client. Raises like `name`."""
    return project(usual if value is None else value)


def reason(what: str, value: object, limit: int = REASON_LIMIT) -> str:
    """Return `value` if it is a valid reason: one line. Raises like `name`."""
    return _checked(what, value, limit, IN_REASONS)


def words(what: str, value: object, limit: int = WORDS_LIMIT) -> str:
    """Return `value` if it is valid words: a reason that may also contain line ends and tabs. Raises like `name`."""
    return _checked(what, value, limit, IN_WORDS)


def is_name(value: object, limit: int = NAME_LIMIT) -> bool:
    """Whether the value is a valid name."""
    return _wrong(value, limit, IN_NAMES) is None


def is_words(value: object, limit: int = WORDS_LIMIT) -> bool:
    """Whether the value is valid words."""
    return _wrong(value, limit, IN_WORDS) is None


def likeness(value: str) -> str:
    """The name itself if it is valid; an older name from before the rule with `?` for each invalid character."""
    if is_name(value, len(value)):
        return value
    return unicodedata.normalize("NFC", IN_NAMES.sub("?", value)).strip(" ") or "?"


def point(character: str) -> str:
    """A character's code point and name: `U+200B (ZERO WIDTH SPACE)`."""
    called = unicodedata.name(character, "")
    return f"U+{ord(character):04X}" + (f" ({called})" if called else "")


def _checked(what: str, value: object, limit: int, refused: re.Pattern[str]) -> str:
    if wrong := _wrong(value, limit, refused):
        raise BadInput(f"{what} {wrong}")
    assert isinstance(value, str)
    return value


def _wrong(value: object, limit: int, refused: re.Pattern[str]) -> str | None:
    """The problem with a value, phrased to follow its name in a message; None if it is valid."""
    if not isinstance(value, str):
        return f"must be text, not {type(value).__name__}"
    if not value or len(value) > limit:
        return f"must be 1 to {limit:,} characters; got {len(value):,}"
    if value.isascii() and value.isprintable() and value[0] != " " != value[-1]:
        return None
    return _hides(value, refused)


def _hides(value: str, refused: re.Pattern[str]) -> str | None:
    if found := refused.search(value):
        message = f"holds {point(found[0])} as character {found.start() + 1} of {value[:60]!a}"
        return f"{message}, which is invisible or steers a terminal. Leave it out, or use an ordinary letter or space"
    bare = value.strip(BLANKS)
    if not bare or (bare != value and refused is not IN_WORDS):
        return f"begins or ends with a blank: {value[:60]!a}. Leave that out"
    if (composed := unicodedata.normalize("NFC", value)) != value:
        return f"is not composed (Unicode's NFC): {value[:60]!a}. Write {composed[:60]!a}"
    return None
