"""The exceptions that users see: a sentence that says what is wrong and what to do."""


class UserError(Exception):
    """Something the user can mend.  The command line prints it as one sentence and exits with code 2."""


class IndexUnavailable(UserError):
    """An index that is elsewhere does not answer, and did not when it was asked again.  It may come back."""
