"""Proofs that leave the database: keys, anchors, exports, and what checks them."""
