"""The tables and figures of PROL's paper, run again and set beside what it prints."""
