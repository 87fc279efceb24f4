"""fairseq's Transformer checkpoints without fairseq."""

from knn_seq.fairseq.checkpoint.configuration import FairseqConfig
from knn_seq.fairseq.checkpoint.modeling import FairseqForTranslation
from knn_seq.fairseq.checkpoint.network import make_network
from knn_seq.fairseq.checkpoint.reading import Checkpoint, read_checkpoint
from knn_seq.fairseq.checkpoint.tokenizer import FairseqTokenizer, dictionaries_fingerprint
from knn_seq.fairseq.dictionary import Dictionary

__all__ = [
    "Checkpoint",
    "Dictionary",
    "FairseqConfig",
    "FairseqForTranslation",
    "FairseqTokenizer",
    "dictionaries_fingerprint",
    "make_network",
    "read_checkpoint",
]
