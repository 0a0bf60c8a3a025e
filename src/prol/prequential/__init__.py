"""Prequential statistics: predictions for images that are about to be learnt, compared with the labels given."""
