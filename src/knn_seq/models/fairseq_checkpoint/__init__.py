"""fairseq's Transformer checkpoints without fairseq."""

from knn_seq.corpus.fairseq_dictionary import Dictionary
from knn_seq.models.fairseq_checkpoint.configuration import FairseqConfig
from knn_seq.models.fairseq_checkpoint.modeling import FairseqForTranslation
from knn_seq.models.fairseq_checkpoint.network import make_network
from knn_seq.models.fairseq_checkpoint.reading import Checkpoint, read_checkpoint
from knn_seq.models.fairseq_checkpoint.tokenizer import FairseqTokenizer, dictionaries_fingerprint

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
