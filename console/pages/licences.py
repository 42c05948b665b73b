"""The libraries of others that the pages use, with their licences."""

from fastapi import APIRouter, Request
from starlette.responses import Response

from interlock.console.rendering import page
from interlock.console.session import Visitor
from interlock.console.static_files import FOLDER
from interlock.console.vendored import VENDORED

router = APIRouter()


@router.get("/licences")
async def licences(request: Request, _visitor: Visitor) -> Response:
    """Name, version, use and licence of each."""
    texts = {each.name: (FOLDER / each.text).read_text() for each in VENDORED}
    return page(request, "licences.html", vendored=VENDORED, texts=texts)
