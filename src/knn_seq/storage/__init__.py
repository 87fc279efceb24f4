"""What a datastore is on disk: values, keys, sentences, manifest."""

from knn_seq.storage.folder import DatastoreFolder
from knn_seq.storage.keys import KeyWriter, open_keys
from knn_seq.storage.lock import FolderLock
from knn_seq.storage.manifest import CombinerInfo, Counts, IndexInfo, KeyInfo, Manifest, ModelInfo, SubsetInfo
from knn_seq.storage.pairs import PairInfo
from knn_seq.storage.ragged import Ragged, RaggedWriter
from knn_seq.storage.segment import Segment
from knn_seq.storage.text import TextFile, TextWriter

__all__ = [
    "CombinerInfo",
    "Counts",
    "DatastoreFolder",
    "FolderLock",
    "IndexInfo",
    "KeyInfo",
    "KeyWriter",
    "Manifest",
    "ModelInfo",
    "PairInfo",
    "Ragged",
    "RaggedWriter",
    "Segment",
    "SubsetInfo",
    "TextFile",
    "TextWriter",
    "open_keys",
]
