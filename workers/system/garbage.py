"""When Python looks for objects that refer to each other in a circle and are used by nobody."""

import gc

OBJECTS = 30_000  # new ones between two looks; Python's own figure is 700


def collect_seldom() -> None:
    """Look for garbage seldom in this process, as nodes do.

    A round makes thousands of objects and hardly a circle; to look after each 700 takes 1 to 2 % of a node's time.
    """
    gc.set_threshold(OBJECTS)
