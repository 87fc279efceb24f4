"""A lean way through the decoders of the common networks: few torch calls a step, and a cache that is not copied."""

from knn_seq.models.fused.decoder import FusedDecoder
from knn_seq.models.fused.network import FusedNetwork, fused_network

__all__ = ["FusedDecoder", "FusedNetwork", "fused_network"]
