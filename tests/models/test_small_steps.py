"""Steps that are too small for several threads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from firefox_files import firefox_model
from tiny_models import NumberTokenizer

from knn_seq.models.firefox import FirefoxModel
from knn_seq.models.firefox_network import FirefoxNetwork
from knn_seq.models.firefox_network.sizes import FirefoxSizes
from knn_seq.models.search import loop
from knn_seq.settings import DecodingSettings, ModelSettings
