"""Tables and plots of finished runs, made from their files alone."""

from prol.report.run import footprint_table, headline, plot_run, result_tables

__all__ = ["footprint_table", "headline", "plot_run", "result_tables"]


def __dir__() -> list[str]:
    return __all__
