"""BookKeeper's own arithmetic: which fragments adhere, which bookies its workers choose, and which ledgers they fence.

Each module names the class of BookKeeper whose rule it is; tests compare it with that class. Read this
package to change that; the decisions of Trueup are in the package above.
"""
