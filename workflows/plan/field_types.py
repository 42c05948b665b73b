"""The types of a plan's fields, with the parsing of their written forms."""

import re
from collections.abc import Callable
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, JsonValue
from pydantic_core import PydanticCustomError

from interlock.workflows.errors import BadInput
from interlock.workflows.input import names
from interlock.workflows.plan.yaml_scalars import BOOLEANS, data

DURATION = re.compile(r"(?=[0-9])(?:([0-9]{1,9})d)?(?:([0-9]{1,9})h)?(?:([0-9]{1,9})m)?(?:([0-9]{1,9})s)?")
DURATION_PARTS_SECONDS = (86_400, 3_600, 60, 1)
MEMORY = re.compile(r"([0-9]{1,12}) ?([KMGT])(?:i?B)?")
MEMORY_BYTES = {"K": 1024, "M": 1024**2, "G": 1024**3, "T": 1024**4}
IDENTIFIER = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,59}$"
VARIABLE = r"^[A-Za-z_][A-Za-z0-9_]*$"
KEPT_ELSEWHERE = r"^(env:[A-Za-z_][A-Za-z0-9_]*|file:[^\x00-\x1f]+|command:[A-Za-z0-9][A-Za-z0-9._-]*)$"
RESULT = r"^[^:]+(:.+)?$"
GLOB = r"^[^!#\s]"
LONGEST_SECONDS = 30 * 86_400
LARGEST_BYTES = 1024**5


def _seconds(value: object) -> object:
    """`1h30m` as 5400; pydantic parses numbers and checks the bounds."""
    if isinstance(value, str) and (written := DURATION.fullmatch(value)):
        return sum(int(part or 0) * each for part, each in zip(written.groups(), DURATION_PARTS_SECONDS, strict=True))
    return _number(value, "should be a number of seconds or a duration such as 30m or 1h30m")


def _bytes(value: object) -> object:
    """`512M` as 536870912. Units are powers of 1024, as `ulimit` and cgroups count."""
    if isinstance(value, str) and (written := MEMORY.fullmatch(value)):
        return int(written[1]) * MEMORY_BYTES[written[2]]
    return _number(value, "should be a number of bytes or a size such as 512M or 2G")


def _number(value: object, otherwise: str) -> object:
    """Return `value` if it is a number or a text that looks like one."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise PydanticCustomError("quantity", "{otherwise}", {"otherwise": otherwise})
    if isinstance(value, str) and not re.fullmatch(r"[-+]?[0-9]*\.?[0-9]+([eE][-+]?[0-9]+)?", value):
        raise PydanticCustomError("quantity", "{otherwise}", {"otherwise": otherwise})
    return value


def _count(value: object) -> object:
    return _number(value, "should be a whole number")


def _flag(value: object) -> object:
    """Only true and false: YAML 1.1's yes, no, on and off are text in YAML 1.2."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value in BOOLEANS:
        return BOOLEANS[value]
    raise PydanticCustomError("flag", "should be true or false")


def _plain_text(value: str) -> str:
    if value.isspace():
        raise PydanticCustomError("blank", "should not be blank")
    return value


def _worded(rule: Callable[[str, object], str]) -> AfterValidator:
    """Validates by a rule of `workflows.input.names`."""

    def validate(value: str) -> str:
        try:
            return rule("it", value)
        except BadInput as wrong:
            raise PydanticCustomError("wording", "{message}", {"message": str(wrong).removeprefix("it ")}) from wrong

    return AfterValidator(validate)


def _reads(read: Callable[[object], object], written: Any) -> BeforeValidator:
    return BeforeValidator(read, json_schema_input_type=written)


Identifier = Annotated[str, Field(pattern=IDENTIFIER)]
Reference = Annotated[str, Field(min_length=1, max_length=121)]
ResultReference = Annotated[str, Field(pattern=RESULT, max_length=400)]
Variable = Annotated[str, Field(pattern=VARIABLE)]
SecretReference = Annotated[str, Field(pattern=KEPT_ELSEWHERE, max_length=1000)]
Text = Annotated[str, Field(min_length=1), AfterValidator(_plain_text)]
Name = Annotated[str, Field(min_length=1), _worded(names.name)]
Project = Annotated[str, Field(min_length=1), _worded(lambda what, value: names.project(value, what))]
Title = Annotated[str, Field(min_length=1), AfterValidator(str.strip), _worded(names.reason)]
Message = Annotated[str, Field(min_length=1), _worded(names.words)]
Glob = Annotated[str, Field(pattern=GLOB)]
Flag = Annotated[bool, _reads(_flag, bool)]
Data = Annotated[JsonValue, _reads(data, JsonValue)]
ExitCode = Annotated[int, Field(ge=0, le=255), _reads(_count, Annotated[int, Field(ge=0, le=255)])]
Count = Annotated[int, _reads(_count, int)]
Ratio = Annotated[float, Field(allow_inf_nan=False), _reads(_count, float)]
WrittenDuration = Annotated[str, Field(pattern=r"^([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?$")]
Seconds = Annotated[int, Field(ge=1, le=LONGEST_SECONDS), _reads(_seconds, int | WrittenDuration)]
Delay = Annotated[
    float, Field(ge=0, le=LONGEST_SECONDS, allow_inf_nan=False), _reads(_seconds, float | WrittenDuration)
]
WrittenSize = Annotated[str, Field(pattern=r"^[0-9]+ ?[KMGT](i?B)?$")]
Bytes = Annotated[int, Field(ge=1024**2, le=LARGEST_BYTES), _reads(_bytes, int | WrittenSize)]
