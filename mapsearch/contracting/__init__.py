"""The contract of a mapping: one file per domain, all in `domains.DOMAINS`; held against measurements in `measured`."""
