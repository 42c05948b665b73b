"""A Merkle tree as RFC 6962 (section 2.1) defines it, of which only the right edge is kept.

The edge holds the roots of the largest full subtrees, the smallest first. That is all it takes to append a leaf and to
compute the root; and the edge before the last leaf is that leaf's inclusion proof.
"""

from collections.abc import Sequence
from hashlib import sha256

Edge = tuple[bytes, ...]
EMPTY: Edge = ()


def leaf_hash(entry: bytes) -> bytes:
    """The hash of an entry."""
    return sha256(b"\0" + entry).digest()


def _node(left: bytes, right: bytes) -> bytes:
    return sha256(b"\1" + left + right).digest()


def appended(edge: Edge, size: int, leaf: bytes) -> Edge:
    """The edge after one more leaf.

    Args:
        edge: the edge of the tree before; it has as many hashes as `size` has bits that are set.
        size: the number of leaves before.
        leaf: the hash of the new leaf.
    """
    full = 0
    while size >> full & 1:
        leaf = _node(edge[full], leaf)
        full += 1
    return (leaf, *edge[full:])


def root(edge: Edge) -> bytes:
    """The root of a tree that is not empty. The last leaf's hash before its inclusion proof has the same root."""
    found, *rest = edge
    for each in rest:
        found = _node(each, found)
    return found


def is_last(size: int, path: Edge) -> bool:
    """Whether an inclusion proof can be that of the last leaf of a tree of this size."""
    return size > 0 and len(path) == (size - 1).bit_count()


def consistency(leaves: Sequence[bytes], old: int) -> list[bytes]:
    """The proof that the tree of these leaves begins with the first `old` of them (RFC 6962, section 2.1.2).

    Args:
        leaves: the hashes of all leaves.
        old: the size of the older tree, 0 to `len(leaves)`.
    """
    return _subproof(leaves, old, whole=True) if old else []


def _subproof(leaves: Sequence[bytes], old: int, *, whole: bool) -> list[bytes]:
    if old == len(leaves):
        return [] if whole else [_root_of(leaves)]
    split = 1 << (len(leaves) - 1).bit_length() - 1
    if old <= split:
        return [*_subproof(leaves[:split], old, whole=whole), _root_of(leaves[split:])]
    return [*_subproof(leaves[split:], old - split, whole=False), _root_of(leaves[:split])]


def _root_of(leaves: Sequence[bytes]) -> bytes:
    edge = EMPTY
    for size, leaf in enumerate(leaves):
        edge = appended(edge, size, leaf)
    return root(edge)
