"""Legality rules of frameworks as data, one file per framework; `constraints/framework.py` chooses among them."""
