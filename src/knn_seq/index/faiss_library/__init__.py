"""What is done to indexes of the library faiss; importing this loads it with the right BLAS kernels."""

from importlib import import_module
from typing import Any

from knn_seq.index.blas import choose_kernels
from knn_seq.runtime.libraries import require_memory_for_faiss

choose_kernels()
require_memory_for_faiss()
faiss: Any = import_module("faiss")  # only now: its BLAS library reads the choice while it is loaded

# faiss computes distances to all vectors of a flat index or quantizer one by one below so many numbers in the queries,
# and with a matrix product above.  The product wins from a few queries of dimension 512 on; faiss's own threshold
# stands at 250 of them.
faiss.cvar.distance_compute_blas_threshold = 5 * 512
