"""Linux software RAID in user space: arrays in the on-disk format of Linux md, as file objects.

    with mdspace.open(["sda.img", "sdb.img", "sdc.img"]) as array:
        print(array.size, array.status()["state"])
        first = array.read(4096)
"""

from ._array import Array, create, detect, open
from ._error import Error
from ._mdspace import __version__

__all__ = ["Array", "Error", "__version__", "create", "detect", "open"]
