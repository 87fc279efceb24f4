"""Files that clients send: their bytes get to the disk under a name of ours, and must be what their name says."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from starlette.datastructures import UploadFile

from knn_seq.serve.errors import bad_request, too_large
from knn_seq.serve.jobs import Job

LONGEST_NAME = 120
HEAD = 4096  # bytes that tell what a file is
GZIP, ZIP = b"\x1f\x8b", b"PK\x03\x04"
ZIPPED = (".docx", ".odt", ".pptx", ".xlsx")


def client_name(upload: UploadFile) -> str:
    """What a client calls a file, for people: the last part of it, without control characters."""
    name = PurePosixPath((upload.filename or "").replace("\\", "/")).name
    return "".join(letter for letter in name if letter.isprintable())[-LONGEST_NAME:] or "file"


def save_upload(upload: UploadFile, job: Job, suffixes: Iterable[str], largest: int) -> Path:
    """Write an upload into the folder of a job; the name has nothing of the client's but a known ending.

    Args:
        upload: The file.
        job: Whose it is.
        suffixes: Endings of names that can be read.
        largest: Bytes of it at most.
    """
    name = job.state.name.lower()
    suffix = max((each for each in suffixes if name.endswith(each)), key=len, default=None)
    if suffix is None:
        raise bad_request("Invalid request: file format not supported")
    if upload.size is not None and upload.size > largest:
        raise too_large(largest)
    if not upload.size:
        raise bad_request("Invalid request: empty file")
    _require_content(upload.file.read(HEAD), suffix)
    upload.file.seek(0)
    path = job.folder / f"upload{suffix}"
    with path.open("xb") as file:
        shutil.copyfileobj(upload.file, file)
    return path


def _require_content(head: bytes, suffix: str) -> None:
    """Raise a `RequestError` if the content is not of the kind that the name tells."""
    if suffix.endswith(".gz"):
        fitting = head.startswith(GZIP)
    elif suffix in ZIPPED:
        fitting = head.startswith(ZIP)
    else:
        wide = head.startswith((b"\xff\xfe", b"\xfe\xff"))  # UTF-16, which has null bytes
        fitting = wide or (b"\0" not in head and not head.startswith(GZIP))
    if not fitting:
        raise bad_request(f"Invalid request: the file is not what its name says ({suffix}).")
