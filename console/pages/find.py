"""What the palette of commands finds while somebody types: instances by the beginning of their name, or by their id."""

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from interlock.api.inside import inside
from interlock.api.models import Text
from interlock.api.problems import JsonAnswer
from interlock.console.session import Lister
from interlock.db.connection import transaction
from interlock.db.core import newest_instances
from interlock.db.core.newest_instances import NamedInstance
from interlock.workflows.input.names import NAME_LIMIT

router = APIRouter()

MOST = 12


@router.get("/find")
async def find(caller: Lister, words: Annotated[Text, Query(max_length=NAME_LIMIT)]) -> Response:
    """Instances that the visitor may see."""

    def look() -> Sequence[NamedInstance]:
        with transaction(caller.access.runtime.database) as connection:
            return newest_instances.named(connection, words, projects=caller.principal.projects, limit=MOST)

    return JsonAnswer(
        {
            "items": [
                {
                    "label": f"{each['workflow_type']}/{each['entity_id']}",
                    "hint": f"{each['current_state']} · {each['project']}",
                    "url": f"/instances/{each['id']}",
                }
                for each in await inside(look)
            ]
        }
    )
