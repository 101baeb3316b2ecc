"""The filters of member clusters, one file each; `filters.FILTERS` is the ordered list.

`rule` defines what a filter is, `filters` evaluates them, `admission` finds the changes that would
make a refused cluster feasible.
"""
