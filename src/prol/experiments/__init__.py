"""Many runs for one answer."""
