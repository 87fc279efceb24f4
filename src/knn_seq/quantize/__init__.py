"""k-means, product quantization, OPQ and PCA as torch code: the same on a CPU and on any GPU."""

from knn_seq.quantize.kmeans import kmeans
from knn_seq.quantize.nearest import nearest_centroids
from knn_seq.quantize.opq import OPQ
from knn_seq.quantize.pca import PCA
from knn_seq.quantize.product import ProductQuantizer

__all__ = ["OPQ", "PCA", "ProductQuantizer", "kmeans", "nearest_centroids"]
