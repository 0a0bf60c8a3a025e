"""prol inside other libraries and services. Each module needs an optional extra and is imported on demand."""


def first_line(error: BaseException) -> str:
    """The first words of an error that another library raised; such errors may have pages."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)[:300]
