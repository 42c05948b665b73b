"""Pin every third-party image to its tag's current digest: python ops/pin_images.py (needs docker and the registries).

A tag's owner can move it to another image; a digest cannot change. Rewrites docker-compose.yml and Dockerfile; a person
should review the difference and commit it.
"""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
FILES = ("docker-compose.yml", "Dockerfile")
PINNED = re.compile(r"(?m)^(?P<word>\s*image: |FROM )(?P<tag>[a-z][\w./-]*:[\w.-]+)@sha256:(?P<digest>[0-9a-f]{64})")


def digest(docker: str, tag: str) -> str:
    """A tag's current digest, for all platforms. Raises `CalledProcessError`."""
    words = [docker, "buildx", "imagetools", "inspect", tag, "--format", "{{json .Manifest}}"]
    said = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    return str(json.loads(said)["digest"]).removeprefix("sha256:")


def main() -> int:
    """Returns the exit code: 1 if docker is missing or a registry does not answer."""
    docker = shutil.which("docker")
    if docker is None:
        print("no docker here: run this where there is one that reaches the registries", file=sys.stderr)
        return 1
    for name in FILES:
        text = (ROOT / name).read_text()
        try:
            now = {found["tag"]: digest(docker, found["tag"]) for found in PINNED.finditer(text)}
        except subprocess.CalledProcessError as failed:
            print(f"{failed.cmd[4]}: {failed.stderr.strip()}", file=sys.stderr)
            return 1
        for tag, value in now.items():
            text = re.sub(rf"{re.escape(tag)}@sha256:[0-9a-f]{{64}}", f"{tag}@sha256:{value}", text)
            print(f"{name}: {tag}@sha256:{value}")
        (ROOT / name).write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
