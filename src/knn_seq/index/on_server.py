from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray


class OnServer(ABC):
    """An index whose entries lie on a server: whoever changes them there changes them for all who search."""

    lacking = 0  # so many of its entries may be gone there, since they are deleted

    @abstractmethod
    def forget(self, ids: NDArray[np.int64]) -> None:
        """Delete entries on the server that nobody is to find any more; the numbers of others, and how many there are
        taken to be, stay.

        Args:
            ids: (n,); some of them may be gone already.
        """
