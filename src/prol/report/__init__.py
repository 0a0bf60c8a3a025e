"""Tables and plots of finished runs, made from their files alone."""

from prol.report.plot import plot_run
from prol.report.table import footprint_table, headline, result_tables

__all__ = ["footprint_table", "headline", "plot_run", "result_tables"]
