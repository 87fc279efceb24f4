"""A lean way through the common networks: few torch calls a step, no padding, and a cache that is not copied."""

from knn_seq.models.fused.decoder import FusedDecoder
from knn_seq.models.fused.encoder import FusedEncoder, fused_encoder
from knn_seq.models.fused.network import FusedNetwork, fused_network

__all__ = ["FusedDecoder", "FusedEncoder", "FusedNetwork", "fused_encoder", "fused_network"]
