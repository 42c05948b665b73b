"""Scripts and styles under URLs that name their content, so that a browser keeps them for ever."""

from functools import cache
from hashlib import sha256
from pathlib import Path

from fastapi import APIRouter
from starlette.exceptions import HTTPException
from starlette.responses import FileResponse

router = APIRouter()

FOLDER = Path(__file__).parent / "static"
TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml", ".txt": "text/plain"}
FOR_EVER = {"Cache-Control": "public, max-age=31536000, immutable"}


@cache
def url(name: str) -> str:
    """The URL of a file of `static`."""
    digest = sha256((FOLDER / name).read_bytes()).hexdigest()[:12]
    return f"/static/{digest}/{name}"


@cache
def _served() -> dict[str, Path]:
    files = (each.relative_to(FOLDER) for each in FOLDER.rglob("*") if each.suffix in TYPES)
    return {url(each.as_posix()): FOLDER / each for each in files}


@router.get("/static/{digest}/{name:path}")
async def static_file(digest: str, name: str) -> FileResponse:
    """One of the files, at the URL of its content."""
    file = _served().get(f"/static/{digest}/{name}")
    if file is None:
        raise HTTPException(404)
    return FileResponse(file, media_type=TYPES[file.suffix], headers=FOR_EVER)
