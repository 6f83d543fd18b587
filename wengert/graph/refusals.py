"""Why a function cannot be captured, or not this time."""

from wengert.core.place import Place, describe
from wengert.errors import CaptureError

__all__ = ["NeedsValues", "NotCapturable", "NotYet"]


class NotCapturable(CaptureError):  # noqa: N818 - what it says, not what went wrong
    """The program does something that no graph can say."""


class NotYet(CaptureError):  # noqa: N818 - what it says, not what went wrong
    """The program is to run once as it is before it is captured.

    Attributes:
        patient: it may have to do so many times: what is missing is made under a condition.
    """

    patient = False


class NeedsValues(CaptureError):  # noqa: N818 - what it says, not what went wrong
    """The program asks for the values of a tensor while it is being captured.

    Attributes:
        place: the line that asked.
    """

    def __init__(self, message: str, place: Place) -> None:
        super().__init__(f"{message} (asked for at {describe(place)})")
        self.place = place
