"""What people already use, over the same learners. Each part is an extra and imported only when asked for."""
