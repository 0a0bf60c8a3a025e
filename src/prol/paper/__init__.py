"""The tables and figures of PROL's paper, run again and compared with what it prints."""
