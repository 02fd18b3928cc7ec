"""Mappings as launch files of training frameworks, and launch files as mappings and cases.

What is written is read again by the reader of the same file and held against the mapping before it is handed out; what
a framework cannot express is said. Which rank stands on which device is the business of `mapsearch.placing`.
"""
