"""The exceptions that users see: a sentence that says what is wrong, with which file or option, and what to do."""


class KnnSeqError(Exception):
    """Something the user can fix.  The command line prints it as one sentence and exits with code 2."""


class InvalidSetting(KnnSeqError, ValueError):
    """A setting, an option or an argument has a value that it cannot have."""


class NotFound(KnnSeqError, FileNotFoundError):
    """A file or a folder that was named is not there."""


class DamagedFile(KnnSeqError, ValueError):
    """A file is there, but does not hold what it should."""


class UnknownTokens(KnnSeqError, ValueError):
    """Too much of a text is unknown to the model's vocabulary."""


class DiskFull(KnnSeqError, OSError):
    """There is no space left to write to."""


class NotEnoughMemory(KnnSeqError, MemoryError):
    """There is less memory than something needs."""


class MissingLibrary(KnnSeqError, ImportError):
    """An optional library is needed that is not installed."""


class ModelMismatch(KnnSeqError, ValueError):
    """A datastore was made with another model than the one that is to search it."""


class IndexUnavailable(KnnSeqError, ConnectionError):
    """An index on a server does not answer, and did not when it was asked again.  It may come back."""
