"""A real model adapted to a real domain, with what installs along with the package."""

from knn_seq.demo.run import run_demo

__all__ = ["run_demo"]
