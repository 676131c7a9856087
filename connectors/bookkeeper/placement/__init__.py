"""Marks of under-replicated ledgers, and the Auditor's election."""
