"""prol inside other libraries and services. Each module needs an optional extra and is imported on demand."""
