"""Reader of the binary shortlists that come with Firefox's translation models."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from knn_seq.errors import DamagedFile
from knn_seq.models.shortlist import Shortlist

MAGIC = 0xF11A48D5013417F5
HEADER = 6  # numbers of 8 bytes: magic, checksum, frequent tokens, tokens for each, offsets, targets


def find_shortlist(folder: Path) -> Path | None:
    """The shortlist in a model's folder, if it has one."""
    files = sorted(folder.glob("lex*.s2t.bin"))
    return files[0] if len(files) == 1 else None


def read_shortlist(path: Path, vocab_size: int) -> Shortlist:
    """The shortlist of a file, for a vocabulary of this size; a `DamagedFile` says what does not fit.

    Behind the header lie the offsets, 8 bytes each, then the target tokens, 4 bytes each.  The first tokens of the
    vocabulary, its most frequent ones, may come anywhere.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DamagedFile(f"Cannot read the shortlist {path}: {error.strerror}.") from error
    header = np.frombuffer(data, "<u8", min(HEADER, len(data) // 8)).tolist()
    if len(header) < HEADER or header[0] != MAGIC:
        raise DamagedFile(f"{path} is not a binary shortlist of Marian: get it again, or leave out --shortlist.")
    frequent, offset_count, target_count = header[2], header[4], header[5]
    if len(data) != 8 * HEADER + 8 * offset_count + 4 * target_count or not offset_count:
        raise DamagedFile(f"The shortlist {path} is cut short or damaged: get it again, or leave out --shortlist.")
    offsets = np.frombuffer(data, "<i8", offset_count, 8 * HEADER)
    targets = np.frombuffer(data, "<u4", target_count, 8 * HEADER + 8 * offset_count)
    if offsets[0] != 0 or offsets[-1] != target_count or (np.diff(offsets) < 0).any():
        raise DamagedFile(f"The shortlist {path} is damaged, its offsets do not ascend: get it again.")
    if target_count and int(targets.max()) >= vocab_size:
        raise DamagedFile(f"The shortlist {path} has tokens that its model's vocabulary ({vocab_size}) has not.")
    return Shortlist(
        offsets.astype(np.int64), targets.astype(np.int64), np.arange(min(frequent, vocab_size)), vocab_size
    )
