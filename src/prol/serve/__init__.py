"""prol as a service: one writer, readers on snapshots, nothing acknowledged that a crash could take back."""
