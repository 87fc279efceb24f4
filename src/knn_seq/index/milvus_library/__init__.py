"""What `milvus.py` needs to know of Milvus: the words for its indexes, and how its server is asked."""
