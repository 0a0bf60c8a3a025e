"""Machinery that methods share: pure functions with shapes, and small holders of state."""
