"""The exception of the package. The native module raises it with the parts of the Rust library's error."""

import errno

_NUMBERS = {
    "refused": errno.EINVAL,
    "out-of-range": errno.EINVAL,
    "read-only": errno.EROFS,
    "io": errno.EIO,
    "no-space": errno.ENOSPC,
    "stopped": errno.EIO,
}


class Error(OSError):
    """Why a call failed.

    As text it is in the words of the command `mdspace`: member, field, reason, what was changed, advice. It is an
    OSError, so code for files takes it.

    kind: "refused" (no member was changed), "out-of-range", "read-only", "io" (the remaining members cannot supply the
        data, or too many have failed), "no-space" (repeat the write when there is room), or "stopped" (the array is not
        running in this process: it forked after the array was opened).
    member: the member concerned, or None.
    field: the field of its metadata, by md's name, or None.
    reason: the reason, without member and field.
    changed: what had been changed before the failure, or None.
    advice: what to do next, or None.
    """

    def __init__(self, kind, text, member=None, field=None, reason=None, changed=None, advice=None):
        super().__init__(_NUMBERS[kind], text)
        self.kind = kind
        self.member = member
        self.field = field
        self.reason = reason if reason is not None else text
        self.changed = changed
        self.advice = advice

    def __str__(self):
        return self.strerror
