"""Explanations: what binds a mapping, how stable it is, what rules cost, why nothing fits, and why not another one."""
